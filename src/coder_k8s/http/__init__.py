"""A small HTTP/1.1 client and server, on the parser `httptools` and asyncio's transports.

| module       | content                                                        |
|--------------|----------------------------------------------------------------|
| `errors`     | what can go wrong, without headers, bodies and passwords        |
| `urls`       | the parts of a URL that a request needs                        |
| `incoming`   | one response, from the bytes of a connection                   |
| `connection` | one connection, and one request on it at a time                |
| `connecting` | TCP, TLS and the tunnel of a proxy                             |
| `pool`       | connections that are kept open, and the requests of the client |
| `server`     | the server of health and metrics                               |

The client does what the operator needs and nothing else: no redirects, no cookies, no retries.
"""
