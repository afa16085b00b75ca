package batchfile

import (
	"archive/zip"
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	counterweight "github.com/counterweight/counterweight/client/go"
)

func readNpz(path string) (*counterweight.Batch, error) {
	archive, err := zip.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = archive.Close() }()
	batch := &counterweight.Batch{}
	columns := floats(batch)
	shapes := map[string][]int{}
	for _, file := range archive.File {
		name := strings.TrimSuffix(file.Name, ".npy")
		column := columns[name]
		if column == nil && !slices.Contains([]string{mask, lengths, versions, spans, groups}, name) {
			continue
		}
		array, err := readMember(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		switch name {
		case lengths, groups:
			numbers, err := toInt64(array.values)
			if err != nil || len(array.shape) != 1 {
				return nil, fmt.Errorf("%s must be one-dimensional integers, not %T of shape %v", name, array.values, array.shape)
			}
			*map[string]*[]int64{lengths: &batch.SequenceLengths, groups: &batch.GroupIDs}[name] = numbers
			continue
		case spans:
			if batch.VersionSpans, err = toSpans(array.values, array.shape); err != nil {
				return nil, fmt.Errorf("%s %w", name, err)
			}
			continue
		case mask:
			batch.ResponseMask, err = toMask(array.values)
		case versions:
			batch.PolicyVersions, err = toVersions(array.values)
		default:
			*column, err = toFloat32(array.values)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
		shapes[name] = array.shape
	}
	return batch, setShape(batch, shapes)
}

func readMember(file *zip.File) (*ndarray, error) {
	reader, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	return readNpy(bufio.NewReader(reader), file.UncompressedSize64)
}

// setShape takes the shape of the mask, which all others must have; but advantages may be
// [B] or [B, 1], one for each sequence.
func setShape(batch *counterweight.Batch, shapes map[string][]int) error {
	shape := shapes[mask]
	want := 2
	if batch.SequenceLengths != nil {
		want = 1
	}
	if shape != nil && len(shape) != want {
		return fmt.Errorf("%s has shape %v; it must be [B, T], or one-dimensional beside %s", mask, shape, lengths)
	}
	if want == 2 && shape != nil {
		batch.Shape = [2]int{shape[0], shape[1]}
	}
	if shape != nil {
		rows := rowLengths(batch)
		if batch.GroupIDs != nil && len(batch.GroupIDs) != len(rows) {
			return fmt.Errorf("%s has %d elements for %d sequences", groups, len(batch.GroupIDs), len(rows))
		}
		given, count := shapes[advantages], len(rows)
		isOne := slices.Equal(given, []int{count, 1}) && !slices.Equal(shape, given)
		isOne = isOne || (slices.Equal(given, []int{count}) && !slices.Equal(shape, given))
		if slices.Equal(given, shape) && slices.Equal(given, []int{count}) && slices.ContainsFunc(rows, func(n int64) bool { return n != 1 }) {
			return fmt.Errorf("%s fit one per token and one per sequence, because sequences are empty; save [B, 1] for one per sequence, or leave the empty sequences out", advantages)
		}
		if isOne && !slices.ContainsFunc(rows, func(n int64) bool { return n < 0 }) {
			batch.Advantages = perToken(batch.Advantages, rows)
			shapes[advantages] = shape
		}
	}
	for name, other := range shapes {
		if shape != nil && !slices.Equal(shape, other) {
			return fmt.Errorf("%s has shape %v, but %s has %v", name, other, mask, shape)
		}
	}
	return nil
}

func writeNpz(path string, batch *counterweight.Batch, arrays *counterweight.Arrays) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closing := file.Close(); err == nil {
			err = closing
		}
	}()
	shape := batch.Shape[:]
	if batch.SequenceLengths != nil {
		shape = []int{len(batch.ResponseMask)}
	}
	archive := zip.NewWriter(file)
	for _, column := range []struct {
		name   string
		there  bool
		shape  []int
		values any
	}{
		{"weights", arrays.Weights != nil, shape, arrays.Weights},
		{"keep_mask", arrays.KeepMask != nil, shape, arrays.KeepMask},
		{"token_reasons", arrays.TokenReasons != nil, shape, arrays.TokenReasons},
		{"sequence_reasons", arrays.SequenceReasons != nil, []int{len(arrays.SequenceReasons)}, arrays.SequenceReasons},
		{"gradient", arrays.Gradient != nil, shape, arrays.Gradient},
		{lengths, batch.SequenceLengths != nil, []int{len(batch.SequenceLengths)}, batch.SequenceLengths},
	} {
		if !column.there {
			continue
		}
		member, err := archive.CreateHeader(&zip.FileHeader{Name: column.name + ".npy", Method: zip.Store})
		if err != nil {
			return err
		}
		if err := writeNpy(member, &ndarray{column.shape, column.values}); err != nil {
			return err
		}
	}
	return archive.Close()
}
