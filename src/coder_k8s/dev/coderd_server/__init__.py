"""A simulator of coderd: a stateful HTTP server on the loopback address that responds as coderd does.

Recorded, and replayed by `test_contract.py`:

- every response without a license, of coderd 2.30.0 and 2.36.1 (enterprise builds) and of the AGPL build of 2.30.0:
  statuses, bodies, headers; rejected tokens, an unavailable database, rate limits, invalid queries, the daemons
  and jobs of the built-in provisioners;
- statuses and bodies of a licensed 2.36.1: provisioner keys and their daemons, workspace proxies (create, list, get,
  change, delete), accepted and rejected licenses, entitlements of a license with their warnings.

Derived from coderd's source, not recorded: a system user who deletes its own token, requests for workspace proxies by a
user who is not an owner, deleted proxies and duplicate names (`proxies.py`), the 500 for a user who can read but not
create provisioner keys, a duplicate license, the redirect to the access URL, organizations other than the default one
(only for keys, whose names are unique in an organization), and path parameters, which stay encoded unless Go encodes
the path in the same way. Not simulated: connections of proxies and daemons, creation and change of organizations.
Licenses have the signature of the simulator (`make_license`) instead of Coder's.

For tests only: `Switches` and the methods of `State`, which are also available to other processes under `/_control/`.
"""

from coder_k8s.dev.coderd_server.licensing import make_license
from coder_k8s.dev.coderd_server.records import Switches, User
from coder_k8s.dev.coderd_server.server import CoderdServer
from coder_k8s.dev.coderd_server.state import State

__all__ = ["CoderdServer", "State", "Switches", "User", "make_license"]
