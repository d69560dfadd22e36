"""Asks a scheduler as KEDA does: over TLS, by a gRPC library that knows nothing of Symphony.

It believes the server only if the certificate names the host that is dialled, and if HTTP/2 is agreed to in the handshake. Messages are
encoded by hand: there are five fields.
"""

import argparse
import sys

import grpc


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def scaled_object(metadata):
    entries = b"".join(field(3, field(1, key.encode()) + field(2, value.encode())) for key, value in metadata.items())
    return field(1, b"pool") + field(2, b"default") + entries


def fields(data):
    """Field numbers and values: bytes, or integers."""
    def number():
        nonlocal data
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    found = {}
    while data:
        key = number()
        if key & 7 == 0:
            found[key >> 3] = number()
            continue
        length = 8 if key & 7 == 1 else number()
        found[key >> 3], data = data[:length], data[length:]
    return found


def main():
    parser = argparse.ArgumentParser()
    for option in ["--address", "--pki", "--identity", "--subcluster"]:
        parser.add_argument(option, required=True)
    args = parser.parse_args()
    read = lambda name: open(f"{args.pki}/{name}", "rb").read()
    own = {"private_key": read(f"{args.identity}.key"), "certificate_chain": read(f"{args.identity}.pem")}
    credentials = grpc.ssl_channel_credentials(root_certificates=read("ca.pem"), **own)
    reference = scaled_object({"subcluster": args.subcluster})
    with grpc.secure_channel(args.address, credentials) as channel:
        call = lambda method, request: fields(channel.unary_unary(f"/externalscaler.ExternalScaler/{method}")(request, timeout=60))
        print("active:", call("IsActive", reference).get(1, 0))
        spec = fields(call("GetMetricSpec", reference)[1])
        name = spec[1]
        value = fields(call("GetMetrics", field(1, reference) + field(2, name))[1])
        print(f"{name.decode()}: {value.get(2, 0)}, {spec[2]} per replica")
        stream = channel.unary_stream("/externalscaler.ExternalScaler/StreamIsActive")(reference, timeout=60)
        print("streamed:", fields(next(stream)).get(1, 0))
        stream.cancel()
        try:
            call("GetMetricSpec", scaled_object({}))
            sys.exit("a reference without a sub-cluster is taken")
        except grpc.RpcError as error:
            print("refused:", error.details())


main()
