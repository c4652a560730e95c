"""This project's programs in the guest: the init, the runner and the gateway. These programs import
only the standard library: the guest has Debian's Python without further packages."""
