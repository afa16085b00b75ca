package batchfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	counterweight "github.com/counterweight/counterweight/client/go"
)

func readParquet(path string) (*counterweight.Batch, error) {
	input, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = input.Close() }()
	status, err := input.Stat()
	if err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(input, status.Size())
	if err != nil {
		return nil, err
	}
	batch := &counterweight.Batch{}
	columns := floats(batch)
	halves := float16Leaves(file)
	var onePerRow []float32
	for _, column := range file.Root().Columns() {
		name := column.Name()
		target := columns[name]
		if target == nil && name != mask && name != versions && name != groups {
			continue
		}
		if isNumber := column.Leaf() && column.MaxRepetitionLevel() == 0; name == groups || (name == advantages && isNumber) {
			values, err := readNumbers(column, halves)
			if err == nil && name == groups {
				batch.GroupIDs, err = toInt64(values)
			} else if err == nil {
				onePerRow, err = toFloat32(values)
			}
			if err != nil {
				return nil, fmt.Errorf("%s %w", name, err)
			}
			continue
		}
		rows, values, err := readLists(column, halves)
		if err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
		switch name {
		case mask:
			batch.ResponseMask, err = toMask(values)
		case versions:
			batch.PolicyVersions, err = toVersions(values)
		default:
			*target, err = toFloat32(values)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
		if batch.SequenceLengths == nil {
			batch.SequenceLengths = rows
		} else if !slices.Equal(batch.SequenceLengths, rows) {
			return nil, fmt.Errorf("%s has lists of other lengths than the columns before it", name)
		}
	}
	if onePerRow != nil && batch.SequenceLengths != nil {
		batch.Advantages = perToken(onePerRow, batch.SequenceLengths)
	}
	return batch, nil
}

// readNumbers returns the numbers of a column that has one in each row.
func readNumbers(column *parquet.Column, halves []bool) (values any, err error) {
	if !column.Leaf() || column.MaxRepetitionLevel() != 0 {
		return nil, errors.New("must be a column of numbers")
	}
	read, err := reader(column, halves, &values)
	if err != nil {
		return nil, err
	}
	err = eachValue(column, func(value parquet.Value) error {
		if value.IsNull() {
			return errors.New("must have no nulls")
		}
		read(value)
		return nil
	})
	return values, err
}

// float16Leaves tells of each leaf whether it has float16, which the library reads as bytes.
func float16Leaves(file *parquet.File) []bool {
	var leaves []bool
	for _, element := range file.Metadata().Schema {
		if element.Type.Valid {
			_, is := element.LogicalType.Value.(*format.Float16Type)
			leaves = append(leaves, is)
		}
	}
	return leaves
}

// reader appends the values of a column to *values.
func reader(column *parquet.Column, halves []bool, values *any) (func(parquet.Value), error) {
	switch kind := column.Type().Kind(); kind {
	case parquet.Float:
		return into(values, parquet.Value.Float), nil
	case parquet.Double:
		return into(values, parquet.Value.Double), nil
	case parquet.Boolean:
		return into(values, parquet.Value.Boolean), nil
	case parquet.Int32:
		return into(values, parquet.Value.Int32), nil
	case parquet.Int64:
		return into(values, parquet.Value.Int64), nil
	case parquet.FixedLenByteArray:
		if index := column.Index(); index >= 0 && index < len(halves) && halves[index] {
			return into(values, func(value parquet.Value) float32 {
				return fromFloat16(binary.LittleEndian.Uint16(value.ByteArray()))
			}), nil
		}
		fallthrough
	default:
		return nil, fmt.Errorf("must have numbers, not %v", kind)
	}
}

// readLists returns the lengths of a column's lists, and their elements one after the other.
func readLists(column *parquet.Column, halves []bool) (rows []int64, values any, err error) {
	// An element is there at the last definition level; an empty list ends just below the
	// level of the node that is repeated.
	empty := -1
	level := 0
	for ; ; column = column.Columns()[0] {
		if column.Optional() || column.Repeated() {
			level++
		}
		if column.Repeated() {
			empty = level - 1
		}
		if column.Leaf() || len(column.Columns()) != 1 {
			break
		}
	}
	if !column.Leaf() || empty < 0 || column.MaxRepetitionLevel() != 1 {
		return nil, nil, errors.New("must be a column of lists of numbers")
	}
	read, err := reader(column, halves, &values)
	if err != nil {
		return nil, nil, err
	}
	rows = []int64{}
	err = eachValue(column, func(value parquet.Value) error {
		if value.RepetitionLevel() == 0 {
			rows = append(rows, 0)
		}
		switch value.DefinitionLevel() {
		case column.MaxDefinitionLevel():
			rows[len(rows)-1]++
			read(value)
		case empty:
		default:
			return errors.New("must have no nulls")
		}
		return nil
	})
	return rows, values, err
}

// into appends the values that it is called with.
func into[E any](values *any, convert func(parquet.Value) E) func(parquet.Value) {
	*values = []E{}
	return func(value parquet.Value) { *values = append((*values).([]E), convert(value)) }
}

func eachValue(column *parquet.Column, use func(parquet.Value) error) error {
	pages := column.Pages()
	defer func() { _ = pages.Close() }()
	buffer := make([]parquet.Value, 4096)
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for values := page.Values(); err == nil; {
			var n int
			n, err = values.ReadValues(buffer)
			for _, value := range buffer[:n] {
				if wrong := use(value); wrong != nil {
					return wrong
				}
			}
		}
		parquet.Release(page)
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
}

// row is a sequence of a result; a column that the result lacks has nulls only.
type row struct {
	Weights         []float32 `parquet:"weights,optional,list"`
	KeepMask        []bool    `parquet:"keep_mask,optional,list"`
	TokenReasons    []uint16  `parquet:"token_reasons,optional,list"`
	SequenceReasons *uint16   `parquet:"sequence_reasons,optional"`
	Gradient        []float32 `parquet:"gradient,optional,list"`
}

func writeParquet(path string, batch *counterweight.Batch, arrays *counterweight.Arrays) error {
	var rows []row
	begin := 0
	for i, length := range rowLengths(batch) {
		end := begin + int(length)
		made := row{
			Weights:      part(arrays.Weights, begin, end),
			TokenReasons: part(arrays.TokenReasons, begin, end),
			Gradient:     part(arrays.Gradient, begin, end),
		}
		if arrays.KeepMask != nil {
			made.KeepMask = converted(arrays.KeepMask[begin:end], func(keep uint8) bool { return keep == 1 })
		}
		if arrays.SequenceReasons != nil {
			made.SequenceReasons = &arrays.SequenceReasons[i]
		}
		rows = append(rows, made)
		begin = end
	}
	return parquet.WriteFile(path, rows)
}

func part[E any](values []E, begin, end int) []E {
	if values == nil {
		return nil
	}
	return values[begin:end]
}
