// SPDX-License-Identifier: Apache-2.0
// snapkv: main() of the client.

#include "launch/client/commands.h"
#include "launch/output/output_files.h"
#include "launch/signals.h"

int main(int argc, char** argv) {
  snapkv::launch::ReserveStandardStreams();
  snapkv::launch::CatchSignals();
  return snapkv::launch::RunClient(argc, argv);
}
