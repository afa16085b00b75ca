//go:build !race

package counterweight_test

// raceDetected reports whether the race detector is on.
const raceDetected = false
