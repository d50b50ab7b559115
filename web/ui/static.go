package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

//go:embed static
var staticFiles embed.FS

// An asset is a static file. Its name contains a hash of its content, so browsers may cache it forever.
type asset struct {
	name, mediaType string
	plain, packed   []byte
}

// assets are the static files.
type assets struct {
	// names maps a plain file name to its URL.
	names map[string]string
	// files maps a file name with its hash to the file.
	files map[string]asset
}

// mediaTypes are the media types by file extension.
var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// These are the parts of a style sheet and of a script that no browser needs: comments and spaces. No string
// in them has a comment, a line break, or a space beside a mark.
var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cssSpace   = regexp.MustCompile(`\s*\n\s*`)
	cssMark    = regexp.MustCompile(`\s*([{};,])\s*`)
	jsSpace    = regexp.MustCompile(`(?m)^\s*(//.*)?$\n|^ +`)
)

func readAssets() (assets, error) {
	all := assets{names: make(map[string]string), files: make(map[string]asset)}
	entries, err := fs.ReadDir(staticFiles, "static")
	if err != nil {
		return all, fmt.Errorf("read the static files: %w", err)
	}
	for _, entry := range entries {
		plain, err := fs.ReadFile(staticFiles, path.Join("static", entry.Name()))
		if err != nil {
			return all, fmt.Errorf("read the static files: %w", err)
		}
		if entry.Name() == "dispatcher.css" {
			plain = append(append(plain, '\n'), picture.CSS...) // one request for all styles
			plain = cssSpace.ReplaceAll(cssComment.ReplaceAll(plain, nil), []byte("\n"))
			plain = cssMark.ReplaceAll(plain, []byte("$1"))
		}
		extension := path.Ext(entry.Name())
		if extension == ".js" {
			plain = jsSpace.ReplaceAll(plain, nil)
		}
		sum := sha256.Sum256(plain)
		a := asset{
			name: strings.TrimSuffix(entry.Name(), extension) + "." +
				base64.RawURLEncoding.EncodeToString(sum[:9]) + extension,
			mediaType: mediaTypes[extension], plain: plain,
		}
		if a.mediaType == "" {
			return all, fmt.Errorf("read the static file %s: unknown media type", entry.Name())
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(plain); err != nil {
			return all, fmt.Errorf("pack %s: %w", entry.Name(), err)
		}
		if err := w.Close(); err != nil {
			return all, fmt.Errorf("pack %s: %w", entry.Name(), err)
		}
		a.packed = packed.Bytes()
		all.names[entry.Name()], all.files[a.name] = Root+"/static/"+a.name, a
	}
	return all, nil
}

// static is GET /ui/static/NAME.
func (u *UI) static(c *gin.Context) {
	u.protect(c.Writer.Header())
	a, ok := u.assets.files[c.Param("name")]
	if !ok {
		c.Status(http.StatusNotFound)
		return
	}
	h := c.Writer.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := a.plain
	if strings.Contains(c.Request.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = a.packed
	}
	c.Data(http.StatusOK, a.mediaType, body)
}
