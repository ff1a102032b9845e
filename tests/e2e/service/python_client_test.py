#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's grpcio, with stubs made from proto/, against server and worker: health, reflection's list, submit, watch, results,
interactive text, errors with their standard details."""
import hashlib
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

harness.install_python_client()
import grpc  # noqa: E402
from google.rpc import error_details_pb2  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_status import rpc_status  # noqa: E402
from snapkv.v1 import (jobs_pb2, jobs_pb2_grpc, models_pb2, models_pb2_grpc, summarizer_pb2,  # noqa: E402
                       summarizer_pb2_grpc)


def check_health(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", "snapkv.v1.Jobs", "snapkv.v1.Workers", "snapkv.v1.Summarizer", "snapkv.v1.Models"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10, wait_for_ready=True)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
    try:
        health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=10)
        raise AssertionError("an unknown service is healthy")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error


def submit(jobs):
    request = jobs_pb2.CreateJobRequest(request_id="python-1", job=jobs_pb2.Job(display_name="from Python", model="models/tiny"),
                                        open=True)
    request.job.parameters.max_tokens = 6
    request.documents.add(document_id="small", content=b"A small document.")
    job = jobs.CreateJob(request, timeout=20)
    assert job.state == jobs_pb2.Job.UPLOADING
    text = ("A line of the larger document. " * 20).encode()

    def chunks():
        yield jobs_pb2.UploadDocumentRequest(header=jobs_pb2.UploadHeader(
            job=job.name, document_id="larger", size_bytes=len(text), sha256=hashlib.sha256(text).digest()))
        for at in range(0, len(text), 100):
            message = jobs_pb2.UploadDocumentRequest()
            message.chunk.offset, message.chunk.data = at, text[at:at + 100]
            yield message
    status = jobs.UploadDocument(chunks(), timeout=20)
    assert status.complete and status.committed_size == len(text), status
    return jobs.SealJob(jobs_pb2.SealJobRequest(name=job.name), timeout=20)


def watch(jobs, name, states):
    for event in jobs.WatchJob(jobs_pb2.WatchJobRequest(name=name), timeout=120):
        if event.HasField("job") and (not states or states[-1] != event.job.state):
            states.append(event.job.state)


def check_error(jobs):
    try:
        jobs.GetJob(jobs_pb2.GetJobRequest(name="jobs/none"), timeout=10)
        raise AssertionError("a job that does not exist")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
        assert dict(error.trailing_metadata())["snapkv-reason"] == "JOB_NOT_FOUND"
        info = error_details_pb2.ErrorInfo()
        assert rpc_status.from_call(error).details[0].Unpack(info)
        assert info.reason == "JOB_NOT_FOUND" and info.domain == "snapkv", info


def check_large_message(jobs):
    request = jobs_pb2.CreateJobRequest(job=jobs_pb2.Job(model="models/tiny"))
    request.documents.add(document_id="huge", content=b"x" * (5 << 20))
    try:
        jobs.CreateJob(request, timeout=20)
        raise AssertionError("a message of 5 MiB was taken")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
        assert "UploadDocument" in error.details(), error.details()


def run(folder):
    server = harness.Server(folder)
    worker = harness.Worker(folder, "worker", server.address, harness.tiny_model(folder))
    try:
        channel = grpc.insecure_channel(server.address)
        check_health(channel)
        jobs = jobs_pb2_grpc.JobsStub(channel)
        job = submit(jobs)
        states = []
        watcher = threading.Thread(target=watch, args=(jobs, job.name, states))
        watcher.start()
        results = list(jobs.StreamResults(jobs_pb2.StreamResultsRequest(name=job.name, follow=True), timeout=120))
        watcher.join()
        assert sorted(r.document_id for r in results) == ["larger", "small"], results
        assert [r.sequence for r in results] == [1, 2]
        for result in results:
            assert result.status.code == 0 and result.summary and result.usage.completion_tokens == 6, result
            assert result.cache.rows_full >= result.cache.rows_kept > 0 and len(result.params_sha256) == 64, result
        assert states[-1] == jobs_pb2.Job.SUCCEEDED, states
        models = list(models_pb2_grpc.ModelsStub(channel).ListModels(models_pb2.ListModelsRequest(), timeout=10).models)
        assert [m.name for m in models] == ["models/tiny"] and models[0].ready, models
        request = summarizer_pb2.SummarizeRequest(content=b"Interactive text.", model="models/tiny")
        request.parameters.max_tokens = 5
        text, final = "", None
        for delta in summarizer_pb2_grpc.SummarizerStub(channel).Summarize(request, timeout=60):
            text += delta.text
            final = delta.result if delta.HasField("result") else final
        assert final is not None and final.summary == text, (final, text)
        assert final.usage.completion_tokens == 5, final
        check_error(jobs)
        check_large_message(jobs)
        assert worker.terminate() == 143, worker.output()
        assert server.terminate() == 0, server.output()
        print("submitted, watched, read %d results; states %s" % (len(results), states))
    except BaseException:
        print("server:\n%s\nworker:\n%s" % (server.output()[-3000:], worker.output()[-3000:]))
        raise
    finally:
        for process in (worker, server):
            if process.alive():
                process.kill_all()


if __name__ == "__main__":
    place = harness.Folder("python")
    run(place)
    place.remove()
