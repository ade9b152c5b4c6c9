"""The address of a server, and whether others can reach it. Imports no torch, so mistakes are reported at once."""

import errno
import ipaddress
import socket

from ..utils.errors import BabelensError

_SHORTEST_TOKEN = 16


def check_token(host: str, token: str | None) -> None:
    """Checks that a server which others can reach has a token, that it cannot be guessed, and that it can be given."""
    if token is None:
        if not is_loopback(host):
            raise BabelensError(
                f"others can reach {host}: give a token of at least {_SHORTEST_TOKEN} characters in the environment "
                "variable BABELENS_TOKEN, or by --token"
            )
    elif len(token) < _SHORTEST_TOKEN:
        raise BabelensError(f"the token has {len(token)} characters: give it at least {_SHORTEST_TOKEN}")
    elif token != token.strip() or not token.isprintable():
        raise BabelensError("the token has spaces around it or unprintable characters: nobody could give it")


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at a host and a port; connections wait until they are served."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:  # the latter for names that no host can have
        reason = getattr(error, "strerror", None) or error
        raise BabelensError(f"{host} is not a host of this machine: {reason}") from error
    # With the protocol, asyncio turns off that small packets wait for others (TCP_NODELAY).
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        bound.listen()  # two sockets with SO_REUSEADDR can be bound to one port as long as none listens
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise BabelensError(f"port {port} of {host} is taken: choose another by --port") from error
        raise BabelensError(f"{host} cannot be served at port {port}: {error.strerror}") from error
    return bound


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
