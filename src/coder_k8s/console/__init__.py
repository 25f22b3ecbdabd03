"""The command line for people: looks at what the operator cares for, and asks it for things."""
