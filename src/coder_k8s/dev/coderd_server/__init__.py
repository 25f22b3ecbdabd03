"""A simulator of coderd: a real HTTP server on loopback, with state, that answers as coderd does.

Recorded, and replayed by `test_contract.py`:

- every answer without a license, of coderd 2.30.0 and 2.36.1 (enterprise builds) and of 2.30.0's AGPL build: statuses,
  bodies, headers; the refusals of tokens, the database that is down, the rate limits, the queries that are refused, the
  daemons and jobs of the built-in provisioners;
- statuses and bodies of a licensed 2.36.1: provisioner keys and their daemons, workspace proxies (create, list, get,
  change, delete), licenses that are accepted and refused, entitlements of a license with their warnings.

From coderd's source, not recorded: that a system user may delete its own token as a human may, what a user who is no
owner gets for workspace proxies, proxies that are deleted or whose name is taken (`proxies.py`), the 500 for a user who
may read provisioner keys and not make them, a license that is there already, the redirect to the access URL,
organizations beside the default one (only as places for keys: a name is unique within one), and the parameters of a
path, which stay encoded unless Go would encode the path the same way. Not simulated: proxies and daemons that connect,
the creation and change of organizations. What coderd signs with its private key is here a license with the signature of
the simulator (`make_license`).

Invented, for tests to steer with: `Switches` and the methods of `State`, also under `/_control/` for another process.
"""

from coder_k8s.dev.coderd_server.licensing import make_license
from coder_k8s.dev.coderd_server.records import Switches, User
from coder_k8s.dev.coderd_server.server import CoderdServer
from coder_k8s.dev.coderd_server.state import State

__all__ = ["CoderdServer", "State", "Switches", "User", "make_license"]
