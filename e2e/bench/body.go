package main

import (
	"bytes"
	"strconv"
	"time"
)

// Every body has payloadSize bytes and carries, at a fixed place, the number of its callback.
const (
	payloadSize  = 512
	payloadStart = `{"n":"`
	numberDigits = 8
)

// newPayload makes the body of callback 0.
func newPayload() []byte {
	b := []byte(payloadStart + "00000000" + `","order":"20261121-0001","paid":10000,"currency":"CNY","filler":"`)
	const end = `"}`
	b = append(b, bytes.Repeat([]byte("x"), payloadSize-len(b)-len(end))...)
	return append(b, end...)
}

// setNumber writes the number of a callback into its body. It must be less than 10 to the numberDigits.
func setNumber(payload []byte, n int) {
	digits := payload[len(payloadStart) : len(payloadStart)+numberDigits]
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
}

// numberOf reads it back, and says whether there is one.
func numberOf(payload []byte) (int, bool) {
	if len(payload) != payloadSize || !bytes.HasPrefix(payload, []byte(payloadStart)) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(payload[len(payloadStart):len(payloadStart)+numberDigits]), 10, 32)
	return int(n), err == nil
}

// A submission writes what is posted to the API.
type submission struct {
	url     string
	payload []byte
	// members appends further members of callback n, each with a comma before it; nil: none.
	members func(b []byte, n int) []byte
}

// appendTo appends callback n, due then or, with a zero time, at once.
func (s *submission) appendTo(b []byte, n int, due time.Time) []byte {
	setNumber(s.payload, n)
	b = append(b, `{"url":"`...)
	b = append(b, s.url...)
	b = append(b, '"')
	if !due.IsZero() {
		b = append(b, `,"due_at":"`...)
		b = due.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
		b = append(b, '"')
	}
	if s.members != nil {
		b = s.members(b, n)
	}
	b = append(b, `,"payload":`...)
	b = append(b, s.payload...)
	return append(b, '}')
}

// appendBatch appends a batch of the callbacks from first until end.
func (s *submission) appendBatch(b []byte, first, end int, due func(int) time.Time) []byte {
	b = append(b, `{"callbacks":[`...)
	for n := first; n < end; n++ {
		if n > first {
			b = append(b, ',')
		}
		b = s.appendTo(b, n, due(n))
	}
	return append(b, "]}"...)
}
