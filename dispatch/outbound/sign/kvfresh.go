package sign

import (
	"crypto/rand"
	"strconv"
	"time"
)

// A kvTime is how sorted-kv writes the time of an attempt.
type kvTime string

const (
	timeUnix     kvTime = "unix"
	timeUnixMS   kvTime = "unix_ms"
	timeDateTime kvTime = "datetime"
)

// chinaTime is UTC+8, all year round: what the platforms that take a datetime mean by it.
var chinaTime = time.FixedZone("UTC+8", 8*60*60)

// fresh returns the fields that are made anew for each attempt. Their values need no escapes but those of a form.
func (o *kvOptions) fresh(now time.Time) []kvField {
	var fields []kvField
	if o.nonce != "" {
		fields = append(fields, kvField{o.nonce, newNonce()})
	}
	if o.time != "" {
		fields = append(fields, kvField{o.time, o.timeFormat.text(now)})
	}
	return fields
}

func (f kvTime) text(at time.Time) string {
	switch f {
	case timeUnixMS:
		return strconv.FormatInt(at.UnixMilli(), 10)
	case timeDateTime:
		return at.In(chinaTime).Format(time.DateTime)
	}
	return strconv.FormatInt(at.Unix(), 10)
}

const (
	nonceLetters = "abcdefghijklmnopqrstuvwxyz0123456789"
	nonceLen     = 32 // as long as WeChat Pay takes one
)

// newNonce returns random lower-case letters and digits, each as likely as any other.
func newNonce() string {
	const fair = 256 - 256%len(nonceLetters) // bytes from here on would favour the first letters
	var raw [2 * nonceLen]byte
	nonce := make([]byte, 0, nonceLen)
	for {
		_, _ = rand.Read(raw[:]) // it never fails
		for _, b := range raw {
			if int(b) >= fair {
				continue
			}
			if nonce = append(nonce, nonceLetters[int(b)%len(nonceLetters)]); len(nonce) == nonceLen {
				return string(nonce)
			}
		}
	}
}
