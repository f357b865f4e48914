"""The networks of the corpus by field, their files and their inputs."""
