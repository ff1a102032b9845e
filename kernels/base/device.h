// SPDX-License-Identifier: Apache-2.0
// Where a tensor lives and which implementation of an op runs on it, and the Stream every op takes.
#pragma once

namespace snapkv {

// kRef and kCpu both live in host memory: kRef is the scalar reference that judges the others, kCpu the fast
// one.
enum class Device : unsigned char { kRef, kCpu };

constexpr const char* DeviceName(Device d) { return d == Device::kRef ? "ref" : "cpu"; }

// What an op runs on. CPU ops are synchronous and use `threads` OpenMP threads of the calling thread's pool.
// Results never depend on `threads`.
struct Stream {
  Device device = Device::kCpu;
  int threads = 1;
};

}  // namespace snapkv
