package batchfile

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	counterweight "github.com/counterweight/counterweight/client/go"
)

// The files of testdata were written by numpy and pyarrow.
func TestFilesOfNumpyAndPyarrowAreRead(t *testing.T) {
	want := counterweight.Batch{
		RolloutLogProbs: []float32{-1, -2, -0.5}, OldLogProbs: []float32{-0.9, -2.1, -0.5}, ResponseMask: []uint8{1, 1, 0},
	}
	for name, layout := range map[string]func(*counterweight.Batch){
		"three.npz":     func(batch *counterweight.Batch) { batch.Shape = [2]int{1, 3} },
		"packed.npz":    func(batch *counterweight.Batch) { batch.SequenceLengths = []int64{1, 0, 2} },
		"three.parquet": func(batch *counterweight.Batch) { batch.SequenceLengths = []int64{1, 0, 2} },
	} {
		batch, err := Read(filepath.Join("testdata", name))
		if err != nil {
			t.Error(err)
			continue
		}
		expected := want
		layout(&expected)
		if !reflect.DeepEqual(*batch, expected) {
			t.Errorf("%s: %+v", name, batch)
		}
	}
}

func someArrays() *counterweight.Result {
	return &counterweight.Result{Arrays: counterweight.Arrays{
		Weights: []float32{1, 2, 3}, KeepMask: []uint8{1, 0, 1}, Gradient: []float32{4, 5, 6},
		TokenReasons: []uint16{0, 0x8000, 1}, SequenceReasons: []uint16{1, 2},
	}}
}

func TestResultsAreWrittenAsNpz(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.npz")
	batch := &counterweight.Batch{SequenceLengths: []int64{1, 2}, ResponseMask: make([]uint8, 3)}
	if err := Write(path, batch, someArrays()); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	found := map[string]any{}
	for _, member := range archive.File {
		if name := strings.TrimSuffix(member.Name, ".npy"); name != "token_reasons" && name != "sequence_reasons" {
			array, err := readMember(member)
			if err != nil {
				t.Fatal(err)
			}
			found[name] = array.values
		}
	}
	want := map[string]any{
		"weights": []float32{1, 2, 3}, "keep_mask": []uint8{1, 0, 1}, "gradient": []float32{4, 5, 6},
		"sequence_lengths": []int64{1, 2},
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("%v", found)
	}
}

func TestTheHeaderOfAnArrayIsNumpys(t *testing.T) {
	var written bytes.Buffer
	if err := writeNpy(&written, &ndarray{[]int{2, 1}, []uint16{1, 2}}); err != nil {
		t.Fatal(err)
	}
	// numpy.save of the same array.
	want := "\x93NUMPY\x01\x00v\x00{'descr': '<u2', 'fortran_order': False, 'shape': (2, 1), }"
	if got := written.String(); len(got) != 128+4 || !strings.HasPrefix(strings.ReplaceAll(got, "(2, 1,)", "(2, 1)"), want) {
		t.Errorf("%q", got)
	}
}

func TestResultsAreWrittenAsParquet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.parquet")
	batch := &counterweight.Batch{SequenceLengths: []int64{1, 2}, ResponseMask: make([]uint8, 3)}
	if err := Write(path, batch, someArrays()); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.ReadFile[row](path)
	if err != nil {
		t.Fatal(err)
	}
	reasons := []uint16{1, 2}
	want := []row{
		{[]float32{1}, []bool{true}, []uint16{0}, &reasons[0], []float32{4}},
		{[]float32{2, 3}, []bool{false, true}, []uint16{0x8000, 1}, &reasons[1], []float32{5, 6}},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("%v", rows)
	}
}

func npz(t *testing.T, arrays map[string]*ndarray) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "batch.npz")
	output, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = output.Close() }()
	archive := zip.NewWriter(output)
	for name, array := range arrays {
		member, err := archive.Create(name + ".npy")
		if err != nil {
			t.Fatal(err)
		}
		if err := writeNpy(member, array); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatIsNoBatchIsAnError(t *testing.T) {
	row := &ndarray{[]int{1, 2}, []float32{0, 1}}
	for want, arrays := range map[string]map[string]*ndarray{
		"has no response_mask":                              {"old_log_probs": row},
		"must be 0 or 1":                                    {mask: {[]int{1, 2}, []float32{0, 2}}},
		"must be [B, T]":                                    {mask: {[]int{2}, []uint8{0, 1}}},
		"old_log_probs has shape [1 2]":                     {mask: {[]int{2, 1}, []uint8{0, 1}}, "old_log_probs": row},
		"old_log_probs must be float16, float32 or float64": {mask: row, "old_log_probs": {[]int{1, 2}, []uint8{0, 1}}},
		"sequence_lengths must be one-dimensional integers": {mask: row, lengths: row},
		"must be [B, T], or one-dimension":                  {mask: row, lengths: {[]int{1}, []int64{2}}},
	} {
		if _, err := Read(npz(t, arrays)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	for _, path := range []string{"/no/such.npz", "/no/such.parquet", "batch.csv", "batchfile_test.go"} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, header := range []string{
		"", "\x93NUMPY", "\x93NUMPY\x01\x00\x05\x00{}   ", "\x93NUMPY\x02\x00\xff\xff\xff\xff",
		"\x93NUMPY\x01\x00\x41\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999,)}   ",
		"\x93NUMPY\x01\x00\x3c\x00{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}      ",
		"\x93NUMPY\x01\x00\x3c\x00{'descr': '<c8', 'fortran_order': False, 'shape': (1, 1)}     ",
	} {
		if array, err := readNpy(strings.NewReader(header), uint64(len(header))); err == nil {
			t.Errorf("%q is %v", header, array)
		}
	}
}
