"""A stand-in for coderd: a real HTTP server on loopback, with state, that answers as coderd does.

Recorded, and replayed by `test_contract.py`: every answer without a licence, of coderd 2.30.0 and 2.36.1 (enterprise
builds) and of 2.30.0's AGPL build: statuses, bodies, headers; the refusals of tokens, the database that is down, the
rate limits, the queries that are refused, the daemons and jobs of the built-in provisioners.

From exchanges recorded while Coder's own tests ran: the provisioner keys (create, list, delete, look-up of a key that
exists, daemons per key) and the users that they are hidden from.

From reading coderd's source only, never seen: everything else that needs a licence. That is the 500 for a user who may
read keys and not make them, organizations beside the default one (only as places for keys: a name is unique within
one), the workspace proxies, the licence that is accepted or is there already, and the entitlements of a licence; also
that the parameters of a path stay encoded unless Go would encode it the same way. What coderd signs with its private
key is here a licence with the signature of this stand-in (`make_license`).

Invented, for tests to steer with: `Switches` and the methods of `State`, also under `/_control/` for another process.
"""

from coder_k8s.dev.coderd_server.licensing import make_license
from coder_k8s.dev.coderd_server.server import CoderdServer
from coder_k8s.dev.coderd_server.state import State, Switches, User

__all__ = ["CoderdServer", "State", "Switches", "User", "make_license"]
