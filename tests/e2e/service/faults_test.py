#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around the job service: a full disk, a client killed in mid-upload, a model that makes NaN, a document far
beyond the context, cancelled work."""
import hashlib
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

harness.install_python_client()
import grpc  # noqa: E402
from snapkv.v1 import jobs_pb2, jobs_pb2_grpc, summarizer_pb2, summarizer_pb2_grpc  # noqa: E402


def reason_of(error):
    return dict(error.trailing_metadata() or ()).get("snapkv-reason", "")


def create(jobs, documents, **fields):
    request = jobs_pb2.CreateJobRequest(job=jobs_pb2.Job(model="models/tiny"), **fields)
    for name, text in documents:
        request.documents.add(document_id=name, content=text)
    return jobs.CreateJob(request, timeout=20, wait_for_ready=True)


def full_disk(folder):
    """The state folder on a file system of 4 MB: what was acknowledged stays, errors say what is wrong, and it goes on."""
    disk = folder.file("disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], capture_output=True).returncode != 0:
        print("full disk: not run: a file system cannot be mounted here")
        return
    server = None
    try:
        server = harness.Server(folder, state="disk/state")
        jobs = jobs_pb2_grpc.JobsStub(grpc.insecure_channel(server.address))
        kept, refused = [], None
        for i in range(200):
            try:
                kept.append(create(jobs, [("d", os.urandom(20_000).hex().encode())]).name)
            except grpc.RpcError as error:
                refused = error
                break
        assert refused is not None, "4 MB were enough for 8 MB of documents"
        assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and reason_of(refused) == "STORAGE_FULL", refused
        assert "disk" in refused.details() or "space" in refused.details(), refused.details()
        for name in kept:
            assert jobs.GetJob(jobs_pb2.GetJobRequest(name=name), timeout=20).state == jobs_pb2.Job.QUEUED, name
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        harness.eventually(lambda: attempt(jobs, kept), 30, "jobs are taken again when there is room")
        server.kill_all()
        server.restart()
        jobs = jobs_pb2_grpc.JobsStub(grpc.insecure_channel(server.address))
        for name in kept:
            request = jobs_pb2.GetJobRequest(name=name)
            job = harness.retried(lambda: jobs.GetJob(request, timeout=20, wait_for_ready=True))
            assert job.state == jobs_pb2.Job.QUEUED, job
        print("full disk: %d jobs kept, then STORAGE_FULL, then taken again" % len(kept))
        assert server.terminate() == 0
    finally:
        if server is not None and server.alive():
            server.kill_all()
        subprocess.run(["umount", "-l", disk])


def attempt(jobs, kept):
    try:
        kept.append(create(jobs, [("d", b"small")]).name)
        return True
    except grpc.RpcError:
        return False


def killed_client(folder):
    """`snapkv submit` killed in mid-upload goes on at the committed offset."""
    server = harness.Server(folder, state="killed-client")
    try:
        content = "".join("A line of a long document, number %d.\n" % i for i in range(400_000)).encode()[:15_000_000]
        path = folder.file("long.txt", content)
        command = [harness.CLIENT, "submit", "--server", server.address, "--model", "tiny", "--request-id", "killed", path]
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        jobs = jobs_pb2_grpc.JobsStub(grpc.insecure_channel(server.address))

        def committed():
            listed = jobs.ListJobs(jobs_pb2.ListJobsRequest(), timeout=20, wait_for_ready=True).jobs
            if not listed:
                return 0
            name = listed[0].name
            try:
                request = jobs_pb2.GetUploadStatusRequest(job=name, document_id=path)
                return jobs.GetUploadStatus(request, timeout=20).committed_size
            except grpc.RpcError:
                return 0
        harness.eventually(committed, 60, "the first chunk")
        client.kill()
        client.wait()
        before = committed()
        job = jobs.ListJobs(jobs_pb2.ListJobsRequest(), timeout=20).jobs[0]
        if job.state == jobs_pb2.Job.UPLOADING:
            again = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert again.returncode == 0, again.stderr
        job = jobs.GetJob(jobs_pb2.GetJobRequest(name=job.name), timeout=20)
        assert job.state == jobs_pb2.Job.QUEUED and job.counts.bytes == len(content), job
        print("killed client: %d of %d bytes were committed, the rest followed" % (before, len(content)))
        assert server.terminate() == 0
    finally:
        if server.alive():
            server.kill_all()


def bad_documents(folder):
    """A model that makes NaN fails its document, not the job; 15 MiB exceed the context, with both numbers; 17 MiB are refused
    at the header; dropping Summarize stops the work."""
    server = harness.Server(folder, state="bad-documents")
    worker = harness.Worker(folder, "nan", server.address, harness.tiny_model(folder, nan=True))
    try:
        channel = grpc.insecure_channel(server.address)
        jobs = jobs_pb2_grpc.JobsStub(channel)
        job = create(jobs, [("good", b"Fine."), ("bad", b"Zero."), ("after", b"Fine too.")])
        results = {r.document_id: r for r in jobs.StreamResults(
            jobs_pb2.StreamResultsRequest(name=job.name, follow=True), timeout=120)}
        assert results["bad"].status.reason == "INTERNAL" and "NaN" in results["bad"].status.message, results["bad"]
        assert results["good"].status.code == results["after"].status.code == 0, results
        assert jobs.GetJob(jobs_pb2.GetJobRequest(name=job.name), timeout=20).state == jobs_pb2.Job.SUCCEEDED

        long = b"word " * (3 << 20)  # 15 MiB
        job = create(jobs, [], open=True)
        upload(jobs, job.name, "long", long)
        jobs.SealJob(jobs_pb2.SealJobRequest(name=job.name), timeout=20)
        results = list(jobs.StreamResults(jobs_pb2.StreamResultsRequest(name=job.name, follow=True), timeout=300))
        assert len(results) == 1 and results[0].status.reason == "CONTEXT_EXCEEDED", results
        assert "4096" in results[0].status.message and str(len(long))[:5] in results[0].status.message, results[0].status.message
        try:
            upload(jobs, create(jobs, [], open=True).name, "too long", b"x", size=(16 << 20) + 1)
            raise AssertionError("a document over the limit was taken")
        except grpc.RpcError as error:
            assert reason_of(error) == "DOCUMENT_TOO_LARGE", error
        dropped_stream(channel, worker)
        print("bad documents: NaN, context and size are results or refusals; a dropped stream stops the work")
        assert worker.terminate() == 143, worker.output()[-2000:]
        assert server.terminate() == 0
    except BaseException:
        print("server:\n%s\nworker:\n%s" % (server.output()[-3000:], worker.output()[-3000:]))
        raise
    finally:
        for process in (worker, server):
            if process.alive():
                process.kill_all()


def upload(jobs, job, name, data, size=None):
    def messages():
        yield jobs_pb2.UploadDocumentRequest(header=jobs_pb2.UploadHeader(
            job=job, document_id=name, size_bytes=size or len(data), sha256=hashlib.sha256(data).digest()))
        for at in range(0, len(data), 1 << 20):
            message = jobs_pb2.UploadDocumentRequest()
            message.chunk.offset, message.chunk.data = at, data[at:at + (1 << 20)]
            yield message
    return jobs.UploadDocument(messages(), timeout=120)


def dropped_stream(channel, worker):
    """A caller that leaves after the first text: the worker must be free for the next one long before 3,000 tokens are made."""
    summarizer = summarizer_pb2_grpc.SummarizerStub(channel)
    request = summarizer_pb2.SummarizeRequest(content=b"Fine.", model="models/tiny")
    request.parameters.max_tokens = 3000
    call = summarizer.Summarize(request, timeout=120)
    next(delta for delta in call if delta.text)
    call.cancel()
    harness.eventually(lambda: "cancelled" in worker.output().lower(), 30, "the worker hears of it")



if __name__ == "__main__":
    place = harness.Folder("faults")
    for test in sys.argv[1:] or ["full_disk", "killed_client", "bad_documents"]:
        start = time.time()
        globals()[test](place)
        print("%s: %.1f s" % (test, time.time() - start))
    place.remove()
