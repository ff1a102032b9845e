// SPDX-License-Identifier: Apache-2.0
// mpi_comm: the conformance suite under mpirun, with whole messages and with messages split at 1000 bytes.
#include "comm/mpi_comm.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <iostream>
#include <memory>

#include "comm/bootstrap.h"
#include "tests/comm/conformance.h"

namespace snapkv::comm {
namespace {

World* world = nullptr;
std::unique_ptr<MpiComm> split_comm;

int LaunchedRanks() {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size == nullptr ? 1 : std::atoi(size);
}

// Runs the body on this rank, then shares the outcome. A communication error cannot be shared: it ends the
// job.
absl::Status RunShared(HostComm& host, DeviceComm& device, const RankBody& body) {
  const absl::Status mine = body(host, device);
  if (mine.code() == absl::StatusCode::kDeadlineExceeded) AbortJob(*world, mine);
  return host.Agree(mine);
}

std::vector<Transport> Transports() {
  return {{"mpi", LaunchedRanks(),
           [](const RankBody& body) { return RunShared(world->host(), world->device(), body); }},
          {"mpi_split", LaunchedRanks(),
           [](const RankBody& body) { return RunShared(split_comm->host(), split_comm->device(), body); }}};
}

INSTANTIATE_TEST_SUITE_P(Mpi, CommConformance, ::testing::ValuesIn(Transports()),
                         [](const auto& info) { return info.param.name; });

TEST(MpiWorld, KnowsItsNode) {
  EXPECT_EQ(world->size(), LaunchedRanks());
  EXPECT_EQ(world->local_size(), world->size());  // tests run on one node
  EXPECT_EQ(world->local_rank(), world->rank());
  ASSERT_EQ(world->node_names().size(), static_cast<size_t>(world->size()));
  EXPECT_NE(world->node_names()[static_cast<size_t>(world->rank())].find(absl::StrCat("process ", getpid())),
            std::string::npos);
}

}  // namespace
}  // namespace snapkv::comm

int main(int argc, char** argv) {
  using namespace snapkv::comm;
  auto made = Bootstrap(&argc, &argv, BootstrapOptions{absl::Seconds(60)});
  if (!made.ok()) {
    std::cerr << made.status() << "\n";
    return 1;
  }
  world = made->get();
  auto split = MpiComm::Create(MPI_COMM_WORLD, MpiOptions{absl::Seconds(60), 1000});
  if (!split.ok()) {
    std::cerr << split.status() << "\n";
    return 1;
  }
  split_comm = *std::move(split);
  ::testing::InitGoogleTest(&argc, argv);
  // One rank reports progress; the others report failures only.
  if (world->rank() != 0) {
    delete ::testing::UnitTest::GetInstance()->listeners().Release(
        ::testing::UnitTest::GetInstance()->listeners().default_result_printer());
  }
  int64_t failed = RUN_ALL_TESTS();
  if (!world->host().AllReduceMax(absl::MakeSpan(&failed, 1)).ok() || !world->Finalize().ok()) return 1;
  return failed == 0 ? 0 : 1;
}
