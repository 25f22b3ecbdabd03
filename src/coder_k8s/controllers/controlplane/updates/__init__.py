"""Updates of Coder: a change of `image` in the spec of a control plane."""
