package batchfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// An ndarray is an array of a .npy file: its elements in C order.
type ndarray struct {
	shape []int
	// values is []float32, []float64, []int32, []int64, []uint8, []uint16 or []bool.
	values any
}

var (
	npyMagic   = []byte("\x93NUMPY")
	npyDescr   = regexp.MustCompile(`'descr':\s*'([^']*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order':\s*True`)
	npyShape   = regexp.MustCompile(`'shape':\s*\(([^)]*)\)`)
)

// readNpy reads format 1.0 to 3.0, little-endian and in C order, of a file of that size.
func readNpy(reader io.Reader, size uint64) (*ndarray, error) {
	header, err := readNpyHeader(reader)
	if err != nil {
		return nil, err
	}
	if npyFortran.MatchString(header) {
		return nil, fmt.Errorf("it is in Fortran order; save numpy.ascontiguousarray of it")
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
	switch descr[1] {
	case "<f4":
		array.values = make([]float32, elements)
	case "<f8":
		array.values = make([]float64, elements)
	case "<i4":
		array.values = make([]int32, elements)
	case "<i8":
		array.values = make([]int64, elements)
	case "|u1":
		array.values = make([]uint8, elements)
	case "|b1":
		array.values = make([]bool, elements)
	default:
		return nil, fmt.Errorf("its dtype is %s; it must be float32, float64, int32, int64, uint8 or bool", descr[1])
	}
	if err := binary.Read(reader, binary.LittleEndian, array.values); err != nil {
		return nil, fmt.Errorf("it ends too early: %w", err)
	}
	return array, nil
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
