// SPDX-License-Identifier: Apache-2.0
// Writes the hand-made inputs of the fuzz targets: write_seeds FOLDER, into FOLDER/wire and FOLDER/endpoint.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "transport/wire.h"

namespace forgive {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr SipKey kKey{1, 2};

bool WriteFile(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  if (stream) return true;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return false;
}

Bytes Data(uint32_t message_length, uint32_t offset, uint16_t payload, size_t arrived) {
  DataHeader header;
  header.payload_length = payload;
  header.connection_id = 0x1234;
  header.stream_offset = 1024 + uint64_t{offset};
  header.message_number = 2;
  header.offset_in_message = offset;
  header.message_length = message_length;
  header.packet_number = 77;
  Bytes packet(kDataHeaderBytes + arrived, 0x5a);
  WriteDataHeader(header, &kKey, packet.data());
  return packet;
}

Bytes AReport(uint32_t requests, uint32_t sacks) {
  Report report;
  report.connection_id = 0x1234;
  report.report_number = 9;
  report.exempt_eligible = true;
  report.rcv_nxt = 4096;
  report.posted_messages = 8;
  report.request_count = requests;
  report.sack_count = sacks;
  for (uint32_t i = 0; i < requests; ++i) report.requests[i] = Range{4096 + 32 * i, 4112 + 32 * i};
  for (uint32_t i = 0; i < sacks; ++i) report.sacks[i] = Range{8192 + 32 * i, 8208 + 32 * i};
  Bytes packet(kMaxReportBytes);
  packet.resize(WriteReport(report, &kKey, packet.data()));
  return packet;
}

bool WriteWireSeeds(const std::filesystem::path& folder) {
  Connect connect;
  connect.max_payload = 160;
  Bytes connect_packet(kDataHeaderBytes + connect.max_payload);
  WriteConnect(connect, kKey, connect_packet.data());
  Bytes reply_packet(kConnectReplyBytes);
  WriteConnectReply(ConnectReply{}, kKey, reply_packet.data());
  Bytes probe_packet(kControlBytes);
  WriteControl(Control{PacketType::kProbe, 0, 1, 2}, &kKey, probe_packet.data());
  Bytes other_version = reply_packet;
  other_version[0] = 2;
  Bytes cut_header = Data(1 << 20, 4096, 4096, 0);
  cut_header.resize(40);
  return WriteFile(folder / "data_whole", Data(4096, 0, 64, 64)) &&
         WriteFile(folder / "data_trimmed", Data(1 << 20, 4096, 4096, 0)) &&
         WriteFile(folder / "data_last_segment", Data(133, 128, 5, 5)) &&
         WriteFile(folder / "data_zero_length_message", Data(0, 0, 0, 0)) &&
         WriteFile(folder / "data_cut_header", cut_header) && WriteFile(folder / "report_plain", AReport(0, 0)) &&
         WriteFile(folder / "report_full", AReport(kMaxRequestRanges, kMaxSackRanges)) &&
         WriteFile(folder / "connect", connect_packet) && WriteFile(folder / "connect_reply", reply_packet) &&
         WriteFile(folder / "probe", probe_packet) && WriteFile(folder / "other_version", other_version);
}

// Scripts of endpoint_fuzz.cc: a byte of settings, then operations with their arguments.
bool WriteEndpointSeeds(const std::filesystem::path& folder) {
  const Bytes transfer = {0x03, 1, 4, 0, 0, 4, 0, 2, 2, 2};
  // A step of p = 0.6, an eligible and forgivable receive; the first segment arrives, the second is cut, and comes
  // once more after it was forgiven.
  const Bytes trim_forgiven = {0x03, 9, 200, 1, 4, 7, 0, 4, 0, 3, 0, 3, 0, 6, 0, 0, 4, 0, 3, 0, 2, 2, 10, 2};
  const Bytes late_payload = {0x03, 9, 200, 1, 4, 7, 0, 4, 0, 3, 0, 3, 0, 8, 27, 2, 6, 0, 0, 3, 0, 2, 2};
  const Bytes unforgivable = {0x03, 9, 200, 1, 4, 3, 0, 4, 0, 3, 0, 3, 0, 6, 0, 0, 3, 0, 10, 6, 0, 9, 3, 0, 2, 2};
  const Bytes drop_and_time = {0x03, 1, 8, 0, 0, 8, 0, 2, 5, 0, 5, 1, 8, 24, 2, 8, 26, 2, 2};
  const Bytes mutated_with_tags = {0x03, 1, 2, 0, 0, 2, 0, 3, 0, 7, 0, 20, 3, 3, 0, 7, 0, 60, 1, 3, 0, 2};
  const Bytes mutated_without_tags = {0x00, 1, 2, 0, 0, 2, 0, 3, 0, 7, 0, 20, 3, 3, 0, 7, 0, 34, 1, 3, 0, 2};
  const Bytes marked = {0x03, 1, 8, 0, 0, 8, 0, 3, 0, 13, 0, 13, 2, 3, 0, 3, 0, 2, 2};
  const Bytes close_in_the_middle = {0x03, 1, 9, 0, 0, 9, 0, 3, 0, 3, 0, 11, 1, 2, 2, 11, 0, 2};
  const Bytes too_long = {0x03, 1, 1, 0, 0, 2, 0, 2, 2, 8, 27, 2};
  const Bytes injected = {0x03, 12, 1, 14, 1, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 12, 0, 3, 1, 2, 3, 2};
  return WriteFile(folder / "transfer", transfer) && WriteFile(folder / "trim_forgiven", trim_forgiven) &&
         WriteFile(folder / "late_payload", late_payload) && WriteFile(folder / "unforgivable", unforgivable) &&
         WriteFile(folder / "drop_and_time", drop_and_time) && WriteFile(folder / "marked", marked) &&
         WriteFile(folder / "mutated_with_tags", mutated_with_tags) &&
         WriteFile(folder / "mutated_without_tags", mutated_without_tags) &&
         WriteFile(folder / "close_in_the_middle", close_in_the_middle) && WriteFile(folder / "too_long", too_long) &&
         WriteFile(folder / "injected", injected);
}

}  // namespace
}  // namespace forgive

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_seeds FOLDER\n");
    return 1;
  }
  const std::filesystem::path folder(argv[1]);
  for (const char* target : {"wire", "endpoint"}) {
    std::error_code error;
    std::filesystem::create_directories(folder / target, error);
    if (error) {
      std::fprintf(stderr, "cannot make %s: %s\n", (folder / target).c_str(), error.message().c_str());
      return 1;
    }
  }
  return forgive::WriteWireSeeds(folder / "wire") && forgive::WriteEndpointSeeds(folder / "endpoint") ? 0 : 1;
}
