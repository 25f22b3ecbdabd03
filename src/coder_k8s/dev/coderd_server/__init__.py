"""A simulator of coderd: a stateful HTTP server on the loopback address that responds as coderd does.

Recorded, and replayed by `test_contract.py`:

- every response without a license, of coderd 2.30.0 and 2.36.1 (enterprise builds) and of the AGPL build of 2.30.0:
  statuses, bodies, headers; rejected tokens, an unavailable database, rate limits, invalid queries, the daemons
  and jobs of the built-in provisioners, the health report;
- statuses and bodies of a licensed 2.36.1: provisioner keys and their daemons, workspace proxies (create, list, get,
  change, delete), accepted and rejected licenses, entitlements of a license with their warnings, organizations.

`test_sequences.py` replays recorded sequences, after which the state must be equal, too.

Compared with a real coderd without a license by `test_real.py`: the same, the filters of lists, and templates with
their versions and files.

Derived from coderd's source, neither recorded nor compared: requests for workspace proxies by a user who is not an
owner, deleted proxies and duplicate names (`proxies.py`), the 500 for a user who can read but not create provisioner
keys, a duplicate license, the redirect to the access URL, the rules by which daemons take jobs and jobs fail
(`queue.py`), how long a health report is kept (`health.py`), the licensed settings and roles of templates, an
organization that cannot be deleted because of its content, and path parameters, which stay encoded unless Go encodes
the path in the same way. Not simulated: connections of proxies and daemons, members of organizations, workspaces, the
conversion of files. Licenses have the signature of the simulator (`make_license`) instead of Coder's.

For tests only: `Switches` and the methods of `State`, which are also available to other processes under `/_control/`.
"""

from coder_k8s.dev.coderd_server.licensing import make_license
from coder_k8s.dev.coderd_server.records import Switches, User
from coder_k8s.dev.coderd_server.server import CoderdServer
from coder_k8s.dev.coderd_server.state import State

__all__ = ["CoderdServer", "State", "Switches", "User", "make_license"]
