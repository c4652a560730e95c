"""The processes of a local cluster: start, end, namespaces, ports, and links with faults."""
