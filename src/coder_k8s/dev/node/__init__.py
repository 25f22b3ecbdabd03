"""A node that runs pods as processes of the current user, for development and tests.

It is not a kubelet: containers share the machine's files, users and network, and resource limits and security contexts
have no effect. The image of a container selects a program from a table.

| module        | content                                                                |
|---------------|------------------------------------------------------------------------|
| `node`        | the Node object, its Lease, and one worker per pod                     |
| `worker`      | runs a pod: init containers, containers, termination                   |
| `container`   | runs a container: image, environment, process, restarts                |
| `host`        | what all pods have in common: connections, folder, clock               |
| `images`      | the table of images and their programs                                 |
| `instance`    | one process of a container, with its probes and termination message    |
| `environment` | environment variables of a container                                   |
| `local`       | replaces addresses and paths of the cluster with those of this machine |
| `volumes`     | files of `emptyDir`, Secret and ConfigMap volumes                      |
| `probes`      | HTTP probes and their thresholds                                       |
| `status`      | status of a pod, from the states of its containers                     |
| `delays`      | delays of restarts and image pulls                                     |
| `unsupported` | features of a pod that have no effect                                  |
| `forwarder`   | TCP forwarders to the ready endpoints of Services                      |
"""
