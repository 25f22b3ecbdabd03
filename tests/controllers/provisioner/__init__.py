"""Tests of the controller of CoderProvisioner."""
