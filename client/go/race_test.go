//go:build race

package counterweight_test

// raceDetected tells whether the race detector is on.
const raceDetected = true
