package dispatch

import "github.com/seed-ff5a32d8/dispatcher/store"

// ShownURL is an address as people may see it: without credentials, and with the values of its query masked.
func ShownURL(raw string) string { return store.MaskURL(raw) }
