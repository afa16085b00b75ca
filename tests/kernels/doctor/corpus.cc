#include "tests/kernels/doctor/corpus.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace counterweight::kernels::doctor {
namespace {

constexpr int32_t kTrained = 1000;

template <class T>
std::vector<T> Take(std::istream& in, size_t n) {
  std::vector<T> values(n);
  in.read(reinterpret_cast<char*>(values.data()),
          static_cast<std::streamsize>(n * sizeof(T)));
  return values;
}

// Advantages are stored by row.
std::vector<float> Spread(const std::vector<float>& of_rows,
                          const std::vector<int64_t>& offsets) {
  std::vector<float> values;
  for (size_t row = 0; row < of_rows.size(); ++row) {
    values.resize(static_cast<size_t>(offsets[row + 1]), of_rows[row]);
  }
  return values;
}

// The format is that of tests/golden/README.md.
Case Read(const std::string& line, std::istream& in) {
  Case made;
  std::istringstream fields(line);
  std::string expected, rows, positions, name;
  std::getline(fields, made.fault, '\t');
  std::getline(fields, expected, '\t');
  std::getline(fields, rows, '\t');
  std::getline(fields, positions, '\t');
  std::getline(fields, made.origin);
  std::istringstream names(expected);
  while (std::getline(names, name, ',')) made.expected.push_back(name);
  const size_t b = std::stoul(rows), n = std::stoul(positions);
  made.offsets = {0};
  for (const int32_t length : Take<int32_t>(in, b)) {
    made.offsets.push_back(made.offsets.back() + length);
  }
  for (const int32_t id : Take<int32_t>(in, b)) made.group_ids.push_back(id);
  made.values[3] = Spread(Take<float>(in, b), made.offsets);
  for (int i = 0; i < 3; ++i) made.values[i] = Take<float>(in, n);
  made.mask = Take<uint8_t>(in, n);
  for (const uint8_t staleness : Take<uint8_t>(in, n)) {
    made.versions.push_back(kTrained - staleness);
  }
  return made;
}

}  // namespace

const std::vector<Case>& Corpus() {
  static const std::vector<Case>& corpus = *new std::vector<Case>([] {
    const std::string folder = COUNTERWEIGHT_GOLDEN_DIR "/doctor/";
    std::ifstream lines(folder + "batches.tsv");
    std::ifstream bytes(folder + "batches.bin", std::ios::binary);
    std::vector<Case> cases;
    std::string line;
    while (std::getline(lines, line)) cases.push_back(Read(line, bytes));
    EXPECT_TRUE(bytes.good() && bytes.peek() == EOF) << folder;
    return cases;
  }());
  return corpus;
}

void MakeView(const Case& of, View* view) {
  view->versions = {
      .trained = kTrained, .of_positions = of.versions.data(), .came = true};
  view->batch.num_sequences = static_cast<int64_t>(of.offsets.size()) - 1;
  view->batch.offsets = of.offsets.data();
  view->batch.response_mask = of.mask.data();
  for (int i = 0; i < 4; ++i) view->batch.tensors[i].data = of.values[i].data();
  view->batch.versions = &view->versions;
}

Diagnosis ExamineCase(const Case& of) {
  View view;
  MakeView(of, &view);
  return Examine(view.batch, of.group_ids.data());
}

std::vector<std::string> NamesOf(const Diagnosis& diagnosis) {
  std::vector<std::string> names;
  for (const Finding& finding : diagnosis.findings) {
    names.emplace_back(Describe(finding.name).text);
  }
  return names;
}

}  // namespace counterweight::kernels::doctor
