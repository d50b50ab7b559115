package sqlstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An attemptDetail is what of an attempt is stored as JSON.
type attemptDetail struct {
	Timings store.Timings `json:"timings"`
	// Own says that the request began with our own headers, which follow from the attempt and are not repeated: ownUnsigned or
	// ownSigned. They are a third of what there would be to store.
	Own             int            `json:"own,omitempty"`
	RequestHeaders  []store.Header `json:"request_headers,omitempty"`
	ResponseHeaders []store.Header `json:"response_headers,omitempty"`
	Rule            *store.Rule    `json:"rule,omitempty"`
	// URL is where it went, if that was not the callback's own address.
	URL string `json:"url,omitempty"`
}

const (
	ownUnsigned = 1
	ownSigned   = 2
)

// ownHeaders are the headers that a request of ours begins with, as they are shown.
func ownHeaders(a *store.Attempt, own int) []store.Header {
	headers := []store.Header{
		{Name: "webhook-id", Value: store.CallbackPrefix + a.CallbackID},
		{Name: "webhook-timestamp", Value: strconv.FormatInt(a.StartedAt/1000, 10)},
	}
	if own == ownSigned {
		headers = append(headers, store.Header{Name: "webhook-signature", Value: "***"})
	}
	return append(headers, store.Header{Name: "webhook-attempt", Value: strconv.Itoa(a.Number)})
}

// splitOwn takes our own headers from those of the request, if they are what ownHeaders would say.
func splitOwn(a *store.Attempt) (own int, rest []store.Header) {
	for _, own := range [...]int{ownSigned, ownUnsigned} {
		if want := ownHeaders(a, own); len(want) <= len(a.RequestHeaders) && slices.Equal(want, a.RequestHeaders[:len(want)]) {
			return own, a.RequestHeaders[len(want):]
		}
	}
	return 0, a.RequestHeaders
}

// into puts the details back into the attempt, of which the rest has been read.
func (d *attemptDetail) into(a *store.Attempt) {
	a.Timings, a.RequestHeaders, a.ResponseHeaders, a.Rule, a.URL = d.Timings, d.RequestHeaders, d.ResponseHeaders, d.Rule, d.URL
	if d.Own != 0 {
		a.RequestHeaders = append(ownHeaders(a, d.Own), d.RequestHeaders...)
	}
}

// detailOf writes an attempt's detail as encoding/json would; one is written for every attempt, and reflection would cost more
// than the row.
func detailOf(a *store.Attempt) (string, error) {
	scratch := details.Get().(*[]byte)
	defer details.Put(scratch)
	b := append((*scratch)[:0], `{"timings":{"dns":`...)
	b = strconv.AppendFloat(b, a.Timings.DNS, 'f', -1, 64)
	b = append(b, `,"connect":`...)
	b = strconv.AppendFloat(b, a.Timings.Connect, 'f', -1, 64)
	b = append(b, `,"tls":`...)
	b = strconv.AppendFloat(b, a.Timings.TLS, 'f', -1, 64)
	b = append(b, `,"first_byte":`...)
	b = strconv.AppendFloat(b, a.Timings.FirstByte, 'f', -1, 64)
	b = append(b, `,"total":`...)
	b = strconv.AppendFloat(b, a.Timings.Total, 'f', -1, 64)
	b = append(b, '}')
	own, headers := splitOwn(a)
	if own != 0 {
		b = append(b, `,"own":`...)
		b = strconv.AppendInt(b, int64(own), 10)
	}
	b = appendHeaders(b, "request_headers", headers)
	b = appendHeaders(b, "response_headers", a.ResponseHeaders)
	if a.Rule != nil {
		rule, err := json.Marshal(a.Rule)
		if err != nil {
			return "", fmt.Errorf("encode rule: %w", err)
		}
		b = append(b, `,"rule":`...)
		b = append(b, rule...)
	}
	if a.URL != "" {
		b = append(b, `,"url":`...)
		b = appendText(b, a.URL)
	}
	b = append(b, '}')
	*scratch = b
	return string(b), nil
}

// details are what details were written into.
var details = sync.Pool{New: func() any { return new([]byte) }}

func appendHeaders(b []byte, name string, headers []store.Header) []byte {
	if len(headers) == 0 {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":[`...)
	for i, h := range headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendText(b, h.Name)
		b = append(b, `,"value":`...)
		b = appendText(b, h.Value)
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendText writes a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string can always be encoded
			}
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
