//go:build !unix

package outbound

// glance cannot look without waiting here. A connection that was closed meanwhile is found out by its use.
func glance(uintptr, []byte) error { return nil }
