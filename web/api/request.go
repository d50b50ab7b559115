package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

const (
	// maxRequest is the most bytes of a request's body, maxBatch of a batch's.
	maxRequest = 512 << 10
	maxBatch   = 16 << 20
)

// readBody reads the whole body, which is at most limit bytes; a longer one is refused before it is read, or, where it
// does not say its length, as soon as it goes over. It is for handlers, whose requests have an intake as
// their body.
func readBody(c *gin.Context, limit int64) ([]byte, error) {
	r := c.Request
	if len(r.Header["Content-Encoding"]) > 0 {
		return nil, httperr.ErrEncoding
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	in, ok := r.Body.(*intake)
	if !ok {
		return nil, errors.New("the request's body was not taken in")
	}
	var from io.Reader = in
	if r.ContentLength < 0 {
		// The writer below gin's is the one that knows how to close the connection.
		var w http.ResponseWriter = c.Writer
		if under, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			w = under.Unwrap()
		}
		from = http.MaxBytesReader(w, in, limit)
	}
	body, err := in.read(from, r.ContentLength, limit)
	if err != nil {
		return nil, unread(c, err, limit)
	}
	if in.whole != nil {
		err = in.whole()
	}
	return body, err
}

// unread is what is answered where a body could not be read.
func unread(c *gin.Context, err error, limit int64) error {
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge(limit)
	}
	if errors.Is(err, httperr.ErrBusy) {
		c.Header("Connection", "close") // the rest of the body is not waited for
		return err
	}
	return fmt.Errorf("%w: %w", httperr.ErrIncomplete, err)
}

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: at most %d KiB are taken here", httperr.ErrTooLarge, limit>>10)
}

// readJSON reads a body that must be there, and finds it valid JSON.
func readJSON(c *gin.Context, limit int64) ([]byte, error) {
	body, err := readBody(c, limit)
	if err != nil {
		return nil, err
	}
	return body, checkJSON(body)
}

// readFields reads a small object whose fields member decodes. Where optional, no body at all is an empty object.
func readFields(c *gin.Context, optional bool, f *fields, member func(key, value []byte) bool) error {
	if err := readObject(c, optional, f, member); err != nil {
		return err
	}
	return f.err()
}

// readObject is readFields for those who have the engine say what is wrong: it names all of it at once.
func readObject(c *gin.Context, optional bool, f *fields, member func(key, value []byte) bool) error {
	body, err := readBody(c, maxRequest)
	if err != nil {
		return err
	}
	if optional && skipSpace(body, 0) == len(body) {
		return nil
	}
	if err := checkJSON(body); err != nil {
		return err
	}
	f.object(request, "", body, member)
	return nil
}

// readItems reads a batch: an object whose one member of that name is an array of 1 to most items, which are returned as they stand in
// the request. Other members are for the rest to decode.
func readItems(c *gin.Context, f *fields, name string, most int, rest func(key, value []byte) bool) ([][]byte, error) {
	body, err := readJSON(c, maxBatch)
	if err != nil {
		return nil, err
	}
	var (
		items [][]byte
		n     int
		given bool
	)
	f.object(request, "", body, func(key, value []byte) bool {
		if string(key) != name {
			return rest(key, value)
		}
		given = true
		f.array(name, value, func(i int, item []byte) {
			if n = i + 1; n <= most {
				items = append(items, item)
			}
		})
		return true
	})
	switch {
	case len(f.invalid) > 0:
	case !given:
		f.add(name, "is needed")
	case n == 0:
		f.add(name, "must have at least one element")
	case n > most:
		f.add(name, fmt.Sprintf("has %d elements; at most %d are taken at once", n, most))
	}
	return items, f.err()
}
