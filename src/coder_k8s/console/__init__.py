"""The commands for users: show what the operator manages, and change it."""
