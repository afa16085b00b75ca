// Package batchfile reads batches from files and writes their results.
//
// A .npz file has the arrays of Client.correct of the Python client by name:
// rollout_log_probs, old_log_probs, current_log_probs, ref_log_probs, advantages and
// response_mask, all [B, T]; or all one-dimensional, beside sequence_lengths. A Parquet file
// has one row for each sequence and a column of lists for each of these names.
// client/python/README.md has the table of arrays, columns and dtypes.
package batchfile

import (
	"fmt"
	"path/filepath"
	"strings"

	counterweight "github.com/counterweight/counterweight/client/go"
)

// mask and lengths are the columns that are not floating point.
const (
	mask    = "response_mask"
	lengths = "sequence_lengths"
	// versions are of the policy that sampled each token, -1 where unknown.
	versions = "policy_versions"
	// spans say the same, [S, 4].
	spans = "version_spans"
	// groups are those of each sequence, [B].
	groups = "group_ids"
	// advantages may be one for each sequence.
	advantages = "advantages"
)

// floats are the columns of a batch by their names in files.
func floats(batch *counterweight.Batch) map[string]*[]float32 {
	return map[string]*[]float32{
		"rollout_log_probs": &batch.RolloutLogProbs,
		"old_log_probs":     &batch.OldLogProbs,
		"current_log_probs": &batch.CurrentLogProbs,
		"ref_log_probs":     &batch.RefLogProbs,
		"advantages":        &batch.Advantages,
	}
}

// Read reads a batch. An error names the file and what in it is wrong.
func Read(path string) (*counterweight.Batch, error) {
	read := map[string]func(string) (*counterweight.Batch, error){".npz": readNpz, ".parquet": readParquet}[extension(path)]
	if read == nil {
		return nil, fmt.Errorf("%s: a batch is a .npz or a .parquet file", path)
	}
	batch, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if batch.ResponseMask == nil {
		return nil, fmt.Errorf("%s has no %s", path, mask)
	}
	return batch, nil
}

// Check tells whether Write knows the kind of file.
func Check(path string) error {
	if kind := extension(path); kind != ".npz" && kind != ".parquet" {
		return fmt.Errorf("%s: results go into a .npz or a .parquet file", path)
	}
	return nil
}

// Write writes the arrays of a result, in the layout of its batch: weights, keep_mask,
// token_reasons, sequence_reasons, gradient. The keep mask is uint8 in .npz files, as the
// Python client has it, and boolean in Parquet's.
func Write(path string, batch *counterweight.Batch, result *counterweight.Result) error {
	write := writeNpz
	if extension(path) == ".parquet" {
		write = writeParquet
	}
	if err := write(path, batch, &result.Arrays); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func extension(path string) string { return strings.ToLower(filepath.Ext(path)) }

// rowLengths are the positions of each sequence.
func rowLengths(batch *counterweight.Batch) []int64 {
	if batch.SequenceLengths != nil {
		return batch.SequenceLengths
	}
	rows := make([]int64, batch.Shape[0])
	for i := range rows {
		rows[i] = int64(batch.Shape[1])
	}
	return rows
}

// perToken repeats the number of each sequence for its positions.
func perToken(values []float32, lengths []int64) []float32 {
	var total int64
	for _, length := range lengths {
		total += length
	}
	made := make([]float32, 0, total)
	for i, length := range lengths {
		for range length {
			made = append(made, values[i])
		}
	}
	return made
}

// toFloat32 and toMask convert exactly, but for float64.
func toFloat32(values any) ([]float32, error) {
	switch values := values.(type) {
	case []float32:
		return values, nil
	case []float64:
		return converted(values, func(value float64) float32 { return float32(value) }), nil
	}
	return nil, fmt.Errorf("must be float16, float32 or float64, not %T", values)
}

func toInt64(values any) ([]int64, error) {
	switch values := values.(type) {
	case []int64:
		return values, nil
	case []int32:
		return converted(values, func(value int32) int64 { return int64(value) }), nil
	case []uint8:
		return converted(values, func(value uint8) int64 { return int64(value) }), nil
	}
	return nil, fmt.Errorf("must be integers, not %T", values)
}

func toVersions(values any) ([]int32, error) {
	wide, err := toInt64(values)
	if err != nil {
		return nil, err
	}
	for i, value := range wide {
		if int64(int32(value)) != value {
			return nil, fmt.Errorf("must fit into int32; element %d is %d", i, value)
		}
	}
	return converted(wide, func(value int64) int32 { return int32(value) }), nil
}

// toSpans reads rows of sequence, start, end and version.
func toSpans(values any, shape []int) ([]counterweight.VersionSpan, error) {
	numbers, err := toInt64(values)
	if err != nil {
		return nil, err
	}
	if len(shape) != 2 || shape[1] != 4 {
		return nil, fmt.Errorf("must be [S, 4], not %v", shape)
	}
	made := make([]counterweight.VersionSpan, shape[0])
	for i := range made {
		row := numbers[4*i : 4*i+4]
		made[i] = counterweight.VersionSpan{Sequence: row[0], Start: row[1], End: row[2], PolicyVersion: row[3]}
	}
	return made, nil
}

func toMask(values any) ([]uint8, error) {
	wrong := false
	number := func(value int64) uint8 {
		wrong = wrong || value < 0 || value > 1
		return uint8(value)
	}
	var made []uint8
	switch values := values.(type) {
	case []uint8:
		return values, nil
	case []bool:
		made = converted(values, func(value bool) uint8 {
			if value {
				return 1
			}
			return 0
		})
	case []int32:
		made = converted(values, func(value int32) uint8 { return number(int64(value)) })
	case []int64:
		made = converted(values, number)
	case []float32:
		made = converted(values, func(value float32) uint8 {
			wrong = wrong || (value != 0 && value != 1)
			return uint8(value)
		})
	case []float64:
		made = converted(values, func(value float64) uint8 {
			wrong = wrong || (value != 0 && value != 1)
			return uint8(value)
		})
	default:
		return nil, fmt.Errorf("must be bool, integers or floats, not %T", values)
	}
	if wrong {
		return nil, fmt.Errorf("must be 0 or 1 everywhere")
	}
	return made, nil
}

func converted[From, To any](values []From, convert func(From) To) []To {
	made := make([]To, len(values))
	for i, value := range values {
		made[i] = convert(value)
	}
	return made
}
