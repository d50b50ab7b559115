// Package part is what each part of the engine is made with: metrics, log lines that are not repeated without end, the
// times of recovery, and the failpoints of test builds.
//
// It knows none of the parts.
package part
