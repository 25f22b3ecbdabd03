"""`python -m coder_k8s`."""

from coder_k8s.cli import main

main(prog_name="coder-k8s")
