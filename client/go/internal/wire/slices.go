package wire

import "unsafe"

// Element is what tensors are made of.
type Element interface {
	~float32 | ~uint8 | ~uint16 | ~int32
}

// LittleEndian reports whether this machine has numbers in memory as the wire has them.
var LittleEndian = func() bool {
	number := uint16(1)
	return *(*byte)(unsafe.Pointer(&number)) == 1
}()

// Bytes returns the memory of a slice.
func Bytes[E Element](slice []E) []byte {
	if len(slice) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(slice))), len(slice)*SizeOf[E]())
}

// Of returns memory as a slice. The bytes must be aligned for the element.
func Of[E Element](bytes []byte) []E {
	if len(bytes) == 0 {
		return nil
	}
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(bytes))), len(bytes)/SizeOf[E]())
}

// SizeOf is the size of an element in bytes.
func SizeOf[E Element]() int {
	var element E
	return int(unsafe.Sizeof(element))
}

// Overlap reports whether two pieces of memory share a byte.
func Overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	beginA, beginB := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return beginA < beginB+uintptr(len(b)) && beginB < beginA+uintptr(len(a))
}
