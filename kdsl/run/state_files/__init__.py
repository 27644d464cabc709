"""The files of the states of upserts, in a folder or in an object store."""
