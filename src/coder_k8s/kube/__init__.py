"""A small controller runtime. It does not depend on Coder or on the kinds of this operator."""
