#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""2,000 documents over two worker groups, each of which is killed, and the server with them: every document has exactly one
result, and what the dead hand in late is refused."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

harness.install_python_client()
import grpc  # noqa: E402
from snapkv.v1 import jobs_pb2, jobs_pb2_grpc  # noqa: E402

DOCUMENTS = int(os.environ.get("SNAPKV_SERVICE_DOCUMENTS", "2000"))
LEASE_S = 3
TAKE_OVER_S = LEASE_S + 5


class Test:
    def __init__(self):
        self.folder = harness.Folder("exactly-once")
        self.model = harness.tiny_model(self.folder)
        self.server = harness.Server(self.folder, ["--lease", str(LEASE_S)])
        self.groups = [harness.Worker(self.folder, "group%d" % i, self.server.address, self.model, ranks=2) for i in range(2)]
        self.channel = grpc.insecure_channel(self.server.address)
        self.jobs = jobs_pb2_grpc.JobsStub(self.channel)
        self.job = None

    def get(self):
        request = jobs_pb2.GetJobRequest(name=self.job)
        return harness.retried(lambda: self.jobs.GetJob(request, timeout=20, wait_for_ready=True))

    def results(self):
        return self.get().results

    def wait_results(self, count, what):
        harness.eventually(lambda: self.results() >= count, 240, what + ", %d of %d results" % (self.results(), count))

    def submit(self):
        documents = [jobs_pb2.Document(document_id="doc-%d" % i, content=b"Report %d is short." % i) for i in range(DOCUMENTS)]
        request = jobs_pb2.CreateJobRequest(request_id="the-job", job=jobs_pb2.Job(model="models/tiny"), documents=documents)
        request.job.parameters.prompt = "Why?"
        request.job.parameters.max_tokens = 100  # long enough for everybody to die in the middle of the job
        first = self.jobs.CreateJob(request, timeout=60, wait_for_ready=True)
        again = self.jobs.CreateJob(request, timeout=60)
        assert first.name == again.name, "a repeated request made a second job"
        self.job = first.name

    def take_over(self, dead):
        """Kills a group that holds leases, and measures how long their documents wait for the other one."""
        held = {d.document_id for d in self.held(dead)}
        dead.kill_all()
        start = time.time()
        if not held:
            return 0.0

        def all_done():
            return held <= {r.document_id for r in self.stream(0)}
        harness.eventually(all_done, TAKE_OVER_S + 30, "documents of the dead group")
        return time.time() - start

    def held(self, group):
        """Documents that the group works on, by the server's own account."""
        watch = self.jobs.WatchJob(jobs_pb2.WatchJobRequest(name=self.job), timeout=20)
        event = next(iter(watch))
        watch.cancel()
        names = {line.split("worker=")[1].split()[0] for line in group.output().splitlines() if "worker=workers/" in line}
        return [d for d in event.documents if not names or d.worker in names]

    def stream(self, after):
        request = jobs_pb2.StreamResultsRequest(name=self.job, after_sequence=after)
        return harness.retried(lambda: list(self.jobs.StreamResults(request, timeout=60)))

    def run(self):
        self.submit()
        self.wait_results(DOCUMENTS // 10, "the beginning")
        took = self.take_over(self.groups[0])
        print("group 0 killed: its documents were done by the other one after %.1f s (lease %d s)" % (took, LEASE_S))
        self.groups[0].start()
        self.wait_results(DOCUMENTS * 4 // 10, "after group 0")
        before = self.results()
        self.server.kill_all()
        time.sleep(1)
        self.server.restart()
        assert self.results() >= before, "the server has forgotten results that it had shown"
        print("server killed with %d results and started again" % before)
        self.wait_results(DOCUMENTS * 6 // 10, "after the server")
        # The other group is stopped until its leases are over, so that it hands in late; then it is killed as well.
        group = self.groups[1]
        held = self.held(group)
        pids = [group.process.pid] + harness.descendants(group.process.pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(LEASE_S + 2)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        if held:  # on a fast machine it may have had nothing left to do
            harness.eventually(lambda: "LEASE_LOST" in self.server.output() or "lease lost" in group.output(), 60,
                               "the late group hears that its leases are lost")
        late = self.server.output().count("LEASE_LOST")
        group.kill_all()
        group.start()
        self.wait_results(DOCUMENTS, "the end")
        job = self.get()
        assert job.state == jobs_pb2.Job.SUCCEEDED, job
        results = self.stream(0)
        ids = [r.document_id for r in results]
        assert len(ids) == DOCUMENTS, len(ids)
        assert len(set(ids)) == DOCUMENTS, "a document has two results"
        assert set(ids) == {"doc-%d" % i for i in range(DOCUMENTS)}
        assert [r.sequence for r in results] == list(range(1, DOCUMENTS + 1)), "gaps"
        assert all(r.status.code == 0 and r.summary for r in results), [r for r in results if r.status.code][:3]
        again = sum(r.attempt > 1 for r in results)
        print("%d results, each once; %d by a second attempt; %d late results refused with LEASE_LOST" % (len(ids), again, late))
        for group in self.groups:
            code = group.terminate()
            assert code in (143, 1), (code, group.output()[-2000:])  # mpirun reports 1 after a signal to itself
        assert self.server.terminate() == 0, self.server.output()[-2000:]
        self.folder.remove()

    def end(self):
        for process in self.groups + [self.server]:
            if process.alive():
                process.kill_all()


if __name__ == "__main__":
    test = Test()
    try:
        test.run()
    except BaseException:
        print("server:\n" + test.server.output()[-3000:])
        for group in test.groups:
            print("group:\n" + group.output()[-3000:])
        raise
    finally:
        test.end()
