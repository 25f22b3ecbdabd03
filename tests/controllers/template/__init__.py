"""Tests of the controller of CoderTemplate."""
