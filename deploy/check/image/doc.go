// Package image checks the Dockerfile with the parser and the linter of BuildKit, and builds an image from
// what it says without an engine: an OCI layout with the program in it. The image is unpacked, and the
// program runs in the root as the image's user. The base images cannot be pulled by a test, so the Dockerfile
// itself is not built.
package image
