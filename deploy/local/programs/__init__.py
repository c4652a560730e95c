"""The programs of a local cluster: downloaded, built or unpacked once, and cached."""
