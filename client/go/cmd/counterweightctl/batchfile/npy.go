package batchfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// An ndarray is an array of a .npy file: its elements in C order.
type ndarray struct {
	shape []int
	// values is []float32, []float64, []int64, []uint8 or []bool; written also []uint16.
	values any
}

var (
	npyMagic   = []byte("\x93NUMPY")
	npyDescr   = regexp.MustCompile(`'descr':\s*'([^']*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order':\s*True`)
	npyShape   = regexp.MustCompile(`'shape':\s*\(([^)]*)\)`)
)

// readNpy reads format 1.0 to 3.0 of a file of that size.
func readNpy(reader io.Reader, size uint64) (*ndarray, error) {
	header, err := readNpyHeader(reader)
	if err != nil {
		return nil, err
	}
	descr, shape := npyDescr.FindStringSubmatch(header), npyShape.FindStringSubmatch(header)
	if descr == nil || shape == nil {
		return nil, fmt.Errorf("its header has no dtype or shape: %q", header)
	}
	array := &ndarray{}
	elements := 1
	for _, text := range strings.Split(shape[1], ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		length, err := strconv.Atoi(text)
		// An element has a byte at least, so what a header may ask for is bounded.
		if err != nil || length < 0 || (length > 0 && uint64(elements) > size/uint64(length)) {
			return nil, fmt.Errorf("its shape is (%s), but it has %d bytes", shape[1], size)
		}
		array.shape, elements = append(array.shape, length), elements*length
	}
	if array.values, err = readElements(reader, descr[1], elements); err != nil {
		return nil, err
	}
	if npyFortran.MatchString(header) && len(array.shape) == 2 {
		array.values = inOrderOfC(array.values, array.shape[0], array.shape[1])
	}
	return array, nil
}

// readElements reads numbers of the dtype that numpy calls so: "<f4", ">i8", "|b1".
func readElements(reader io.Reader, descr string, elements int) (any, error) {
	var order binary.ByteOrder = binary.LittleEndian
	if strings.HasPrefix(descr, ">") {
		order = binary.BigEndian
	}
	input := elementReader{reader, order, elements}
	switch strings.TrimLeft(descr, "<>|=") {
	case "f2":
		return convertedFrom(input, fromFloat16)
	case "f4":
		return convertedFrom(input, func(value float32) float32 { return value })
	case "f8":
		return convertedFrom(input, func(value float64) float64 { return value })
	case "i1":
		return convertedFrom(input, func(value int8) int64 { return int64(value) })
	case "i2":
		return convertedFrom(input, func(value int16) int64 { return int64(value) })
	case "i4":
		return convertedFrom(input, func(value int32) int64 { return int64(value) })
	case "i8":
		return convertedFrom(input, func(value int64) int64 { return value })
	case "u1":
		return convertedFrom(input, func(value uint8) uint8 { return value })
	case "u2":
		return convertedFrom(input, func(value uint16) int64 { return int64(value) })
	case "u4":
		return convertedFrom(input, func(value uint32) int64 { return int64(value) })
	case "u8":
		fits := true
		values, err := convertedFrom(input, func(value uint64) int64 {
			fits = fits && value <= math.MaxInt64
			return int64(value)
		})
		if err == nil && !fits {
			err = errors.New("must fit into int64")
		}
		return values, err
	case "b1":
		return convertedFrom(input, func(value bool) bool { return value })
	}
	return nil, fmt.Errorf("its dtype is %s; it must be a float of 16 to 64 bits, an integer or bool", descr)
}

type elementReader struct {
	reader   io.Reader
	order    binary.ByteOrder
	elements int
}

func convertedFrom[Raw, Made any](input elementReader, convert func(Raw) Made) (any, error) {
	raw := make([]Raw, input.elements)
	if err := binary.Read(input.reader, input.order, raw); err != nil {
		return nil, fmt.Errorf("it ends too early: %w", err)
	}
	return converted(raw, convert), nil
}

// fromFloat16 widens an IEEE 754 binary16 exactly.
func fromFloat16(bits uint16) float32 {
	sign := uint32(bits>>15) << 31
	exponent, fraction := uint32(bits>>10)&0x1f, uint32(bits)&0x3ff
	switch exponent {
	case 0x1f: // infinity, NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	case 0: // zero, and numbers below 2^-14, in units of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// inOrderOfC transposes elements that lie column by column.
func inOrderOfC(values any, rows, columns int) any {
	switch values := values.(type) {
	case []float32:
		return transposed(values, rows, columns)
	case []float64:
		return transposed(values, rows, columns)
	case []int64:
		return transposed(values, rows, columns)
	case []uint8:
		return transposed(values, rows, columns)
	case []bool:
		return transposed(values, rows, columns)
	}
	return values
}

func transposed[E any](values []E, rows, columns int) []E {
	made := make([]E, len(values))
	for i := range rows {
		for j := range columns {
			made[i*columns+j] = values[j*rows+i]
		}
	}
	return made
}

func readNpyHeader(reader io.Reader) (string, error) {
	start := make([]byte, 8)
	if _, err := io.ReadFull(reader, start); err != nil || !bytes.Equal(start[:6], npyMagic) {
		return "", fmt.Errorf("it is no .npy array")
	}
	size := make([]byte, 4)
	if start[6] == 1 {
		size = size[:2]
	}
	if _, err := io.ReadFull(reader, size); err != nil {
		return "", fmt.Errorf("it ends too early: %w", err)
	}
	length := int(binary.LittleEndian.Uint32(append(size, 0, 0)[:4]))
	if length > 1<<20 {
		return "", fmt.Errorf("its header has %d bytes", length)
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(reader, header); err != nil {
		return "", fmt.Errorf("it ends too early: %w", err)
	}
	return string(header), nil
}

// writeNpy writes format 1.0.
func writeNpy(writer io.Writer, array *ndarray) error {
	var descr string
	switch array.values.(type) {
	case []float32:
		descr = "<f4"
	case []uint8:
		descr = "|u1"
	case []uint16:
		descr = "<u2"
	case []int64:
		descr = "<i8"
	default:
		return fmt.Errorf("there is no dtype for %T", array.values)
	}
	shape := make([]string, len(array.shape))
	for i, size := range array.shape {
		shape[i] = strconv.Itoa(size)
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }", descr, strings.Join(shape, ", "))
	const before = 10 // magic, version and length
	header += strings.Repeat(" ", 63-(before+len(header))%64) + "\n"
	head := append(append([]byte{}, npyMagic...), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(header)))
	if _, err := writer.Write(append(head, header...)); err != nil {
		return err
	}
	return binary.Write(writer, binary.LittleEndian, array.values)
}
