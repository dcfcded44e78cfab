"""The shell: one step, one loop, the mesh, checkpoints and files."""
