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
		if column == nil && name != mask && name != lengths && name != versions {
			continue
		}
		array, err := readMember(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		switch name {
		case lengths:
			if batch.SequenceLengths, err = toLengths(array); err != nil {
				return nil, err
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

func toLengths(array *ndarray) ([]int64, error) {
	switch values := array.values.(type) {
	case []int64:
		return values, nil
	case []int32:
		return converted(values, func(value int32) int64 { return int64(value) }), nil
	}
	return nil, fmt.Errorf("%s must be int32 or int64, not %T", lengths, array.values)
}

// setShape takes the shape of the mask, which all others must have.
func setShape(batch *counterweight.Batch, shapes map[string][]int) error {
	shape := shapes[mask]
	want := 2
	if batch.SequenceLengths != nil {
		want = 1
	}
	if shape != nil && len(shape) != want {
		return fmt.Errorf("%s has shape %v; it must be [B, T], or one-dimensional beside %s", mask, shape, lengths)
	}
	for name, other := range shapes {
		if shape != nil && !slices.Equal(shape, other) {
			return fmt.Errorf("%s has shape %v, but %s has %v", name, other, mask, shape)
		}
	}
	if want == 2 && shape != nil {
		batch.Shape = [2]int{shape[0], shape[1]}
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
