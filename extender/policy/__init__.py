"""The policy: the values that Pods may request from Slurm. The policy is a YAML file, which the extender
checks, and reads again after each change. `rules` applies the policy to Pods."""
