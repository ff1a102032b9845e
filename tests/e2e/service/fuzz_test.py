#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random bytes and mutated messages against a running server: it must live, stay healthy, and end with 0. Seconds: the
environment's SNAPKV_FUZZ_SECONDS, else 5; the seed is printed and can be given as SNAPKV_FUZZ_SEED."""
import hashlib
import os
import random
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

harness.install_python_client()
import grpc  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from snapkv.v1 import jobs_pb2, jobs_pb2_grpc, models_pb2, summarizer_pb2, workers_pb2  # noqa: E402

SECONDS = float(os.environ.get("SNAPKV_FUZZ_SECONDS", "5"))
SEED = int(os.environ.get("SNAPKV_FUZZ_SEED", time.time_ns() % 2**32))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def corpus(job):
    """Valid requests by method, which the mutations start from."""
    create = jobs_pb2.CreateJobRequest(request_id="r", job=jobs_pb2.Job(model="models/m", display_name="n", priority=3))
    create.job.parameters.stop.append("end")
    create.job.parameters.temperature = 0.5
    create.documents.add(document_id="a", content=b"text")
    create.documents.add(document_id="b", content=b'[{"role": "user", "content": "x"}]', media_type="application/json")
    header = jobs_pb2.UploadDocumentRequest(header=jobs_pb2.UploadHeader(
        job=job, document_id="u", size_bytes=4, sha256=hashlib.sha256(b"text").digest()))
    chunk = jobs_pb2.UploadDocumentRequest()
    chunk.chunk.data = b"text"
    worker = workers_pb2.RegisterWorkerRequest(worker=workers_pb2.Worker(
        model="models/m", model_fingerprint="f", max_context=10, max_batch=1, ranks=1))
    renew = workers_pb2.RenewLeaseRequest(worker="workers/w")
    renew.leases.add(lease="leases/1", attempt=1)
    complete = workers_pb2.CompleteDocumentRequest(lease="leases/1", attempt=1)
    complete.result.summary = "s"
    fail = workers_pb2.FailDocumentRequest(lease="leases/1", attempt=1)
    fail.status.code = 3
    delta = workers_pb2.StreamDeltasRequest(lease="leases/i-1", attempt=1)
    delta.delta.text = "x"
    jobs, workers = "/snapkv.v1.Jobs/", "/snapkv.v1.Workers/"
    return [
        ("unary", jobs + "CreateJob", [create]),
        ("unary", jobs + "GetUploadStatus", [jobs_pb2.GetUploadStatusRequest(job=job, document_id="u")]),
        ("unary", jobs + "SealJob", [jobs_pb2.SealJobRequest(name="jobs/x")]),
        ("unary", jobs + "GetJob", [jobs_pb2.GetJobRequest(name=job)]),
        ("unary", jobs + "ListJobs", [jobs_pb2.ListJobsRequest(page_size=2, filter='state = QUEUED AND model = "models/m"')]),
        ("unary", jobs + "DeleteJob", [jobs_pb2.DeleteJobRequest(name="jobs/x")]),
        ("unary", jobs + "CancelJob", [jobs_pb2.CancelJobRequest(name="jobs/x", reason="r")]),
        ("unary", "/snapkv.v1.Models/ListModels", [models_pb2.ListModelsRequest(page_size=1)]),
        ("unary", "/snapkv.v1.Models/GetModel", [models_pb2.GetModelRequest(name="models/m")]),
        ("unary", workers + "RegisterWorker", [worker]),
        ("unary", workers + "AcquireLease", [workers_pb2.AcquireLeaseRequest(worker="workers/w", max_leases=1)]),
        ("unary", workers + "RenewLease", [renew]),
        ("unary", workers + "CompleteDocument", [complete]),
        ("unary", workers + "FailDocument", [fail]),
        ("upload", jobs + "UploadDocument", [header, chunk]),
        ("upload", workers + "StreamDeltas", [delta, delta]),
        ("download", jobs + "WatchJob", [jobs_pb2.WatchJobRequest(name=job)]),
        ("download", jobs + "StreamResults", [jobs_pb2.StreamResultsRequest(name=job)]),
        ("download", workers + "ReadDocument", [workers_pb2.ReadDocumentRequest(lease="leases/1", attempt=1)]),
        ("download", workers + "WatchLeases", [workers_pb2.WatchLeasesRequest(worker="workers/w")]),
        ("download", "/snapkv.v1.Summarizer/Summarize", [summarizer_pb2.SummarizeRequest(content=b"text")]),
    ]


def mutate(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(0, 4)):
        kind = rng.randrange(5)
        at = rng.randrange(len(data) + 1)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 2:
            del data[at:at + rng.randint(1, 8)]
        elif kind == 3:
            data[at:at] = data[rng.randrange(len(data) + 1):][:rng.randint(1, 64)]
        else:
            data[at:at] = b"\xff" * rng.randint(1, 10)
    return bytes(data)


def call(channel, kind, method, messages, rng):
    timeout = rng.choice([0.02, 0.2])
    try:
        if kind == "unary":
            channel.unary_unary(method)(messages[0], timeout=timeout)
        elif kind == "upload":
            channel.stream_unary(method)(iter(messages), timeout=timeout)
        else:
            for _ in channel.unary_stream(method)(messages[0], timeout=timeout):
                pass
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


def raw_bytes(port, rng):
    """Not HTTP/2 at all, or a preface and then frames of chance."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        data = rng.randbytes(rng.randint(1, 2000))
        if rng.random() < 0.7:
            frames = b"".join(len(f).to_bytes(3, "big") + bytes([rng.randrange(12), rng.randrange(256)]) +
                              rng.randrange(2**31).to_bytes(4, "big") + f
                              for f in (rng.randbytes(rng.randint(0, 40)) for _ in range(rng.randint(1, 20))))
            data = PREFACE + frames
        try:
            connection.sendall(data)
            connection.settimeout(0.05)
            connection.recv(4096)
        except OSError:
            pass


def run():
    print("seed %d, %.0f s" % (SEED, SECONDS))
    rng = random.Random(SEED)
    folder = harness.Folder("fuzz")
    server = harness.Server(folder, ["--max-queued-jobs", "1000000"])
    codes, raw = {}, 0
    try:
        channel = grpc.insecure_channel(server.address)
        jobs = jobs_pb2_grpc.JobsStub(channel)
        job = jobs.CreateJob(jobs_pb2.CreateJobRequest(open=True, job=jobs_pb2.Job(model="models/m")), timeout=20,
                             wait_for_ready=True).name
        requests = [(kind, method, [m.SerializeToString() for m in messages]) for kind, method, messages in corpus(job)]
        end = time.time() + SECONDS
        while time.time() < end:
            assert server.alive(), "the server has ended"
            if rng.random() < 0.05:
                raw_bytes(server.port, rng)
                raw += 1
                continue
            kind, method, messages = rng.choice(requests)
            code = call(channel, kind, method, [mutate(m, rng) for m in messages], rng)
            codes[code] = codes.get(code, 0) + 1
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert health.status == health_pb2.HealthCheckResponse.SERVING, health
        assert jobs.GetJob(jobs_pb2.GetJobRequest(name=job), timeout=10).name == job
        # gRPC answers UNIMPLEMENTED, without our code, to what is no message of the method.
        assert "UNKNOWN" not in codes, codes
        assert codes.get("OK", 0) > 0 and codes.get("INVALID_ARGUMENT", 0) > 0, codes
        assert server.terminate(90) == 0, server.output()[-3000:]
        print("%d calls, %d raw connections: %s" % (sum(codes.values()), raw, codes))
    except BaseException:
        print("seed %d, server:\n%s" % (SEED, server.output()[-4000:]))
        raise
    finally:
        if server.alive():
            server.kill_all()
    folder.remove()


if __name__ == "__main__":
    run()
