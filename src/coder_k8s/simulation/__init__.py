"""A discrete-event simulation of provisioners: the operator's decisions compared with other ways to set replicas."""
